// Command minimal is a device plugin on grpc-go with only what it cannot do without, and the client
// that measures plugins in any language. The benchmarks start it:
//
//	minimal plugin DIR COUNT         offers COUNT devices, flips one for every line on stdin
//	minimal calls PATH COUNT WORKERS makes COUNT Allocate calls by each worker at once
//	minimal watch PATH               tells when a list came, until its standard input ends
//
// A client prints JSON: "calls" one object, "watch" one for each list.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/ioutil"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(3)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func dial(path string) *grpc.ClientConn {
	dialer := func(ctx context.Context, path string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	options := []grpc.DialOption{grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(dialer), grpc.WithAuthority("localhost")}
	conn, err := grpc.Dial(path, options...)
	must(err)
	return conn
}

func main() {
	switch arguments := os.Args[2:]; os.Args[1] {
	case "plugin":
		servePlugin(arguments[0], number(arguments[1]))
	case "calls":
		makeCalls(dial(arguments[0]), number(arguments[1]), number(arguments[2]))
	case "watch":
		watch(dial(arguments[0]))
	}
}

// ---------------------------------------------------------------- the client

func allocate(conn *grpc.ClientConn) time.Duration {
	request := &allocateRequest{[]*containerAllocateRequest{{[]string{"widget-1"}}}}
	var response allocateResponse
	begin := time.Now()
	must(conn.Invoke(context.Background(), "/v1beta1.DevicePlugin/Allocate", request, &response))
	if len(response.ContainerResponses) != 1 || len(response.ContainerResponses[0].Devices) != 1 {
		must(fmt.Errorf("an answer without the device: %v", &response))
	}
	return time.Since(begin)
}

func makeCalls(conn *grpc.ClientConn, count, workers int) {
	took := make([]int64, count*workers)
	var done sync.WaitGroup
	begin := time.Now()
	for w := 0; w < workers; w++ {
		done.Add(1)
		go func(mine []int64) {
			defer done.Done()
			for i := range mine {
				mine[i] = allocate(conn).Nanoseconds()
			}
		}(took[w*count : (w+1)*count])
	}
	done.Wait()
	must(json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"seconds": time.Since(begin).Seconds(), "nanoseconds": took,
	}))
}

func watch(conn *grpc.ClientConn) {
	description := &grpc.StreamDesc{ServerStreams: true}
	stream, err := conn.NewStream(context.Background(), description, "/v1beta1.DevicePlugin/ListAndWatch")
	must(err)
	must(stream.SendMsg(&empty{}))
	must(stream.CloseSend())
	go func() {
		io.Copy(ioutil.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		var list listAndWatchResponse
		must(stream.RecvMsg(&list))
		must(json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
			"at": time.Now().UnixNano(), "devices": len(list.Devices), "first": list.Devices[0].Health,
		}))
	}
}

// ---------------------------------------------------------------- the plugin

type plugin struct {
	mu      sync.Mutex
	devices []*device
	changed chan struct{} // closed when there is another list
}

func (p *plugin) flip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	health := "Unhealthy"
	if p.devices[0].Health == health {
		health = "Healthy"
	}
	changed := &device{p.devices[0].ID, health}
	p.devices = append([]*device{changed}, p.devices[1:]...)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plugin) list() (*listAndWatchResponse, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &listAndWatchResponse{p.devices}, p.changed
}

func (p *plugin) listAndWatch(_ interface{}, stream grpc.ServerStream) error {
	var request empty
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	for {
		list, changed := p.list()
		if err := stream.SendMsg(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) allocate(_ interface{}, _ context.Context, read func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
	var request allocateRequest
	if err := read(&request); err != nil {
		return nil, err
	}
	response := &allocateResponse{}
	for _, container := range request.ContainerRequests {
		answer := &containerAllocateResponse{}
		for _, id := range container.DevicesIDs {
			path := "/dev/" + id
			answer.Devices = append(answer.Devices, &deviceSpec{path, path, "rw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

func servePlugin(dir string, count int) {
	p := &plugin{changed: make(chan struct{})}
	for i := 0; i < count; i++ {
		p.devices = append(p.devices, &device{fmt.Sprintf("widget-%d", i), "Healthy"})
	}
	listener, err := net.Listen("unix", dir+"/widget.sock")
	must(err)
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "v1beta1.DevicePlugin",
		Methods:     []grpc.MethodDesc{{MethodName: "Allocate", Handler: p.allocate}},
		Streams:     []grpc.StreamDesc{{StreamName: "ListAndWatch", ServerStreams: true, Handler: p.listAndWatch}},
	}, nil)
	go server.Serve(listener)
	request := &registerRequest{"v1beta1", "widget.sock", "bench.example.com/widget"}
	conn := dial(dir + "/kubelet.sock")
	must(conn.Invoke(context.Background(), "/v1beta1.Registration/Register", request, &empty{}))
	conn.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		p.flip()
	}
}
