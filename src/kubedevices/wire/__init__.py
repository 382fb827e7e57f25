"""Calls over Unix sockets: gRPC on HTTP/2. Bytes in, bytes out; no module knows a message.

`kubelet_api` has the messages, and needs only `unix_grpc` of this package.
From the calls down to the bytes; each line uses only lines below it:

unix_grpc          the two ends that other packages use: GrpcServer and GrpcChannel
grpc_server        answers calls on a socket file
grpc_channel       dials a socket file and calls
grpc_link          one connected socket, driving one of the following without I/O
server_connection  the answering role
client_connection  the calling role
grpc_connection    what both share: gRPC over HTTP/2, bytes in, events and bytes out
grpc_events        a call, its limits, and what is reported about it
grpc_headers       methods, timeouts and statuses as headers
grpc_framing       messages in a byte stream
http2_session      HTTP/2 without I/O: received bytes, the states of streams
http2_output       the half of it that sends
hpack              header blocks ⇄ header fields
huffman            the code of strings in header blocks
header_block       whether HTTP/2 allows the fields of a block
http2_limits       what a peer may make us keep, and do for nothing
http2_frames       frames as bytes
acceptor           takes connections on a listening socket
unix_socket        socket files: whose is it, bind, rename, unlink
"""
