package main

// The few protobuf messages that the plugin needs, by hand: field number and wire type, then a length
// or a number. Written from the protocol's tables, so that it shares nothing with what it tests.

func varint(n uint64) []byte {
	var b []byte
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func lengthDelimited(number int, content []byte) []byte {
	b := append(varint(uint64(number)<<3|2), varint(uint64(len(content)))...)
	return append(b, content...)
}

func text(number int, content string) []byte { return lengthDelimited(number, []byte(content)) }

func join(parts ...[]byte) []byte {
	all := []byte{}
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func readVarint(b []byte) (uint64, []byte) {
	var n uint64
	for i, each := range b {
		n |= uint64(each&0x7f) << (7 * uint(i))
		if each < 0x80 {
			return n, b[i+1:]
		}
	}
	return n, nil
}

// fields returns every length-delimited field with this number; there are no others in what we read.
func fields(b []byte, number uint64) [][]byte {
	found := [][]byte{}
	for len(b) > 0 {
		var tag, size uint64
		tag, b = readVarint(b)
		size, b = readVarint(b)
		if tag&7 != 2 || size > uint64(len(b)) {
			return found
		}
		if tag>>3 == number {
			found = append(found, b[:size])
		}
		b = b[size:]
	}
	return found
}
