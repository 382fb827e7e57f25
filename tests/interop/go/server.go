package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/golang/protobuf/ptypes/any"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// serverOptions are what a plugin could set.
type serverOptions struct {
	Unary      []string `json:"unary"`   // "/package.Service/Method"
	Streams    []string `json:"streams"` // the same
	MaxStreams uint32   `json:"max_streams"`
	MaxReceive int      `json:"max_receive"`
	MaxAge     float64  `json:"max_age"`   // seconds until GOAWAY
	Grace      float64  `json:"grace"`     // and until everything ends; none is for ever
	Keepalive  float64  `json:"keepalive"` // seconds between pings to an idle client
	Gzip       bool     `json:"gzip"`
	Headers    bool     `json:"headers"` // send some that nobody asked for
}

func (o serverOptions) make() *grpc.Server {
	options := []grpc.ServerOption{grpc.MaxConcurrentStreams(o.MaxStreams)}
	if o.MaxReceive != 0 {
		options = append(options, grpc.MaxRecvMsgSize(o.MaxReceive))
	}
	parameters := keepalive.ServerParameters{Time: seconds(o.Keepalive), Timeout: time.Second}
	if o.MaxAge != 0 {
		parameters.MaxConnectionAge, parameters.MaxConnectionAgeGrace = seconds(o.MaxAge), seconds(o.Grace)
	}
	options = append(options, grpc.KeepaliveParams(parameters))
	if o.Gzip {
		options = append(options, grpc.RPCCompressor(grpc.NewGZIPCompressor()))
	}
	return grpc.NewServer(options...)
}

// server has a test answer what is called. It tells "call", then is told "message" (telling "sent"
// once grpc-go has taken it) and "end"; it tells "cancelled" when the client leaves.
type server struct {
	options serverOptions
	server  *grpc.Server
	mu      sync.Mutex
	last    int
	calls   map[int]chan record
}

func runServer(path, text string) {
	s := &server{calls: map[int]chan record{}}
	must(json.Unmarshal([]byte(text), &s.options))
	s.server = s.options.make()
	for name, description := range s.services() {
		description.ServiceName = name
		s.server.RegisterService(description, nil)
	}
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	must(err)
	go s.server.Serve(listener)
	tell(record{Op: "ready"})
	orders(s.act)
}

func (s *server) services() map[string]*grpc.ServiceDesc {
	found := map[string]*grpc.ServiceDesc{}
	of := func(path string) (*grpc.ServiceDesc, string) {
		parts := strings.Split(path, "/")
		if found[parts[1]] == nil {
			found[parts[1]] = &grpc.ServiceDesc{}
		}
		return found[parts[1]], parts[2]
	}
	for _, path := range s.options.Unary {
		path := path
		description, name := of(path)
		description.Methods = append(description.Methods, grpc.MethodDesc{
			MethodName: name,
			Handler: func(_ interface{}, ctx context.Context, read func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
				var request []byte
				if err := read(&request); err != nil {
					return nil, err
				}
				if s.options.Headers {
					grpc.SetHeader(ctx, metadata.Pairs("x-anything", "ä", "x-bytes-bin", "\x00\xff"))
					grpc.SetTrailer(ctx, metadata.Pairs("x-last", strings.Repeat("long ", 500)))
				}
				answer, err := s.answer(ctx, path, request, nil)
				return &answer, err
			},
		})
	}
	for _, path := range s.options.Streams {
		path := path
		description, name := of(path)
		description.Streams = append(description.Streams, grpc.StreamDesc{
			StreamName:    name,
			ServerStreams: true,
			Handler: func(_ interface{}, stream grpc.ServerStream) error {
				var request []byte
				if err := stream.RecvMsg(&request); err != nil {
					return err
				}
				_, err := s.answer(stream.Context(), path, request, stream)
				return err
			},
		})
	}
	return found
}

func (s *server) answer(ctx context.Context, method string, request []byte, stream grpc.ServerStream) ([]byte, error) {
	answers := make(chan record, 16)
	s.mu.Lock()
	s.last++
	id := s.last
	s.calls[id] = answers
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
	}()
	tell(record{Op: "call", ID: id, Method: method, payload: request})
	for {
		select {
		case <-ctx.Done():
			tell(record{Op: "cancelled", ID: id})
			return nil, status.FromContextError(ctx.Err()).Err()
		case r := <-answers:
			if r.Op == "end" {
				return r.payload, statusOf(r)
			}
			if err := stream.SendMsg(&r.payload); err != nil {
				tell(record{Op: "cancelled", ID: id})
				return nil, err
			}
			tell(record{Op: "sent", ID: id})
		}
	}
}

func statusOf(r record) error {
	if r.Details == 0 {
		return status.Error(codes.Code(r.Code), r.Text)
	}
	detail := &any.Any{TypeUrl: "type.example.com/Reason", Value: make([]byte, r.Details)}
	return status.ErrorProto(&spb.Status{Code: int32(r.Code), Message: r.Text, Details: []*any.Any{detail}})
}

func (s *server) act(r record) {
	switch r.Op {
	case "message", "end":
		s.mu.Lock()
		answers := s.calls[r.ID]
		s.mu.Unlock()
		if answers != nil {
			answers <- r
		}
	case "stop":
		s.server.Stop()
		os.Exit(0)
	case "graceful stop":
		go func() {
			s.server.GracefulStop()
			tell(record{Op: "stopped"})
		}()
	}
}
