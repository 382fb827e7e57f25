"""RFC 9113 and RFC 7541 from outside: bytes go to a socket of ours, frames come back.

cases                what a case is, and the pieces that many of them send
server_cases         the 146 cases of h2spec, written again, and what h2spec does not ask
client_cases         the same asked of our channel by a hostile server
conversations        frames from a seed, sensible and not, for the differential tests
ends                 ours, h2 and libnghttp2 behind one face
differential         one conversation with two of them, and in what they may differ
hpack_differential   header blocks with our HPACK and that of the package hpack
floods               floods and bombs, and what one costs us
lives                many streams on a connection, many connections at a server
long_run             the same and more of it for as long as it is told
raw_end              the end of a socket that writes bytes and says in a word what came back
"""
