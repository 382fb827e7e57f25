// Command peer lets grpc-go judge a gRPC end that is not Go's. Tests start it:
//
//	peer client PATH OPTIONS   calls what the test says, see client.go
//	peer server PATH OPTIONS   has the test answer what is called, see server.go
//	peer watch PATH METHOD     holds one stream, says "ready" after its first message
//	peer echo PATH             answers every call with its request, says "ready"
//	peer plugin DIR DEVICES    a device plugin with the files in DEVICES, see plugin.go
//
// A client and a server talk with the test in records: a line of JSON and as many raw bytes as its
// "size" says. They end with their standard input. Messages are bytes; the test knows what they mean.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"
)

// bytesCodec takes the place of the protobuf codec, so that the headers stay those of a kubelet.
type bytesCodec struct{}

func (bytesCodec) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// record is one message between a test and this program.
type record struct {
	Op      string  `json:"op"`
	ID      int     `json:"id"`
	Method  string  `json:"method,omitempty"`
	Stream  bool    `json:"stream,omitempty"`
	Gzip    bool    `json:"gzip,omitempty"`
	Timeout float64 `json:"timeout,omitempty"` // seconds
	Code    uint32  `json:"code"`
	Text    string  `json:"text,omitempty"`
	Details int     `json:"details,omitempty"` // bytes of a status' details
	Count   int     `json:"count,omitempty"`
	Workers int     `json:"workers,omitempty"`
	Micros  []int64 `json:"micros,omitempty"` // of calls, each
	Size    int     `json:"size"`
	payload []byte
}

var out = struct {
	sync.Mutex
	*bufio.Writer
}{Writer: bufio.NewWriterSize(os.Stdout, 1<<16)}

func tell(r record) {
	r.Size = len(r.payload)
	line, err := json.Marshal(r)
	must(err)
	out.Lock()
	defer out.Unlock()
	out.Write(line)
	out.WriteByte('\n')
	out.Write(r.payload)
	out.Flush()
}

// orders calls act for every record of the test and ends the process after the last.
func orders(act func(record)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var r record
		must(json.Unmarshal(line, &r))
		r.payload = make([]byte, r.Size)
		_, err = io.ReadFull(in, r.payload)
		must(err)
		act(r)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(3)
	}
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// watch holds one stream until it is killed.
func watch(path, method string) {
	conn, err := grpc.Dial(path, grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(dialUnix))
	must(err)
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, method)
	must(err)
	request := []byte("x")
	must(stream.SendMsg(&request))
	must(stream.CloseSend())
	for {
		var message []byte
		must(stream.RecvMsg(&message))
		fmt.Println("ready")
	}
}

// echo answers until it is killed; after one answer a call stays open.
func echo(path string) {
	listener, err := net.Listen("unix", path)
	must(err)
	fmt.Println("ready")
	must(grpc.NewServer(grpc.UnknownServiceHandler(func(_ interface{}, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		if method, _ := grpc.MethodFromServerStream(stream); method == "/test.Service/Echo" {
			return nil
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	})).Serve(listener))
}

func main() {
	encoding.RegisterCodec(bytesCodec{})
	switch arguments := os.Args[2:]; os.Args[1] {
	case "client":
		runClient(arguments[0], arguments[1])
	case "server":
		runServer(arguments[0], arguments[1])
	case "watch":
		watch(arguments[0], arguments[1])
	case "echo":
		echo(arguments[0])
	case "plugin":
		runPlugin(arguments[0], arguments[1], arguments[2:])
	}
}
