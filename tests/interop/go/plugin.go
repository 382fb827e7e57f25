package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	resource = "example.com/gopher"
	poll     = 20 * time.Millisecond
	silence  = 600 * time.Millisecond // without a stream: the kubelet has left
)

// plugin is a well-behaved device plugin as one would write it on grpc-go: the files of a directory
// are its devices, those with the text "Unhealthy" are not healthy.
type plugin struct {
	deviceDir, kubelet, path string
	server                   *grpc.Server
	own, registeredAt        string // identities of files

	mu      sync.Mutex
	devices map[string]string // name to health
	changed chan struct{}     // closed when there are others
	stopped chan struct{}     // closed when the server's streams are to end
	streams int

	created chan string // names of files, for a plugin that watches its directory; else nil
	panics  bool        // some time after its second registration
	times   int

	readiness time.Duration // how long it serves before it registers, for a plugin that waits
}

func runPlugin(socketDir, deviceDir string, habits []string) {
	p := &plugin{
		deviceDir: deviceDir,
		kubelet:   filepath.Join(socketDir, "kubelet.sock"),
		path:      filepath.Join(socketDir, "example.com-gopher.sock"),
		changed:   make(chan struct{}),
		panics:    len(habits) > 0 && habits[0] == "panics",
	}
	if len(habits) > 0 && (habits[0] == "watches" || habits[0] == "waits") {
		p.created = creations(socketDir)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	p.devices = p.scan()
	go p.keepScanning()
	if len(habits) > 0 && habits[0] == "waits" {
		readiness, err := time.ParseDuration(habits[1])
		must(err)
		p.readiness = readiness
		p.keepStarting(signals)
		return
	}
	failed := make(chan error)
	p.open()
	go func() { failed <- p.keepServing() }()
	select {
	case <-signals:
		p.close()
	case err := <-failed:
		p.close()
		fmt.Fprintln(os.Stderr, "refused:", err)
		os.Exit(1)
	}
}

func identity(path string) string {
	var s syscall.Stat_t
	if syscall.Lstat(path, &s) != nil {
		return ""
	}
	return fmt.Sprint(s.Dev, s.Ino, s.Ctim)
}

// ---------------------------------------------------------------- devices

func (p *plugin) scan() map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(p.deviceDir, "*"))
	for _, file := range files {
		content, _ := os.ReadFile(file)
		found[filepath.Base(file)] = "Healthy"
		if strings.Contains(string(content), "Unhealthy") {
			found[filepath.Base(file)] = "Unhealthy"
		}
	}
	return found
}

func (p *plugin) keepScanning() {
	for ; ; time.Sleep(poll) {
		found := p.scan()
		p.mu.Lock()
		if fmt.Sprint(found) != fmt.Sprint(p.devices) {
			p.devices = found
			close(p.changed)
			p.changed = make(chan struct{})
		}
		p.mu.Unlock()
	}
}

func (p *plugin) list() ([]byte, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := []string{}
	for name := range p.devices {
		names = append(names, name)
	}
	sort.Strings(names)
	list := []byte{}
	for _, name := range names {
		onNodeNought := lengthDelimited(3, lengthDelimited(1, nil))
		device := join(text(1, name), text(2, p.devices[name]), onNodeNought)
		list = append(list, lengthDelimited(1, device)...)
	}
	return list, p.changed
}

// ---------------------------------------------------------------- the service

func (p *plugin) listAndWatch(_ interface{}, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	p.count(1)
	defer p.count(-1)
	for {
		list, changed := p.list()
		if err := stream.SendMsg(&list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-p.stopped:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) count(change int) {
	p.mu.Lock()
	p.streams += change
	p.mu.Unlock()
}

func (p *plugin) allocate(request []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	response := []byte{}
	for _, container := range fields(request, 1) {
		ids := fields(container, 1)
		if len(ids) == 0 {
			return nil, status.Error(codes.InvalidArgument, "no device IDs")
		}
		sort.Slice(ids, func(i, k int) bool { return string(ids[i]) < string(ids[k]) })
		answer := []byte{}
		for _, id := range ids {
			if health := p.devices[string(id)]; health == "" {
				return nil, status.Errorf(codes.NotFound, "there is no device %s", id)
			} else if health != "Healthy" {
				return nil, status.Errorf(codes.FailedPrecondition, "%s is unhealthy", id)
			}
			env := join(text(1, "GOPHER_"+strings.ToUpper(string(id))), text(2, "1"))
			file := filepath.Join(p.deviceDir, string(id))
			spec := join(text(1, "/dev/gophers/"+string(id)), text(2, file), text(3, "rw"))
			answer = join(answer, lengthDelimited(1, env), lengthDelimited(3, spec))
		}
		response = append(response, lengthDelimited(1, answer)...)
	}
	return response, nil
}

func unary(name string, answer func([]byte) ([]byte, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ interface{}, _ context.Context, read func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
			var request []byte
			if err := read(&request); err != nil {
				return nil, err
			}
			response, err := answer(request)
			return &response, err
		},
	}
}

func (p *plugin) service() *grpc.ServiceDesc {
	nothing := func([]byte) ([]byte, error) { return nil, nil }
	return &grpc.ServiceDesc{
		ServiceName: "v1beta1.DevicePlugin",
		Methods:     []grpc.MethodDesc{unary("GetDevicePluginOptions", nothing), unary("Allocate", p.allocate)},
		Streams:     []grpc.StreamDesc{{StreamName: "ListAndWatch", ServerStreams: true, Handler: p.listAndWatch}},
	}
}

// ---------------------------------------------------------------- life

func (p *plugin) open() {
	if conn, err := net.Dial("unix", p.path); err == nil {
		conn.Close()
		must(fmt.Errorf("another instance serves on %s", p.path))
	}
	os.Remove(p.path)
	p.serve()
}

func (p *plugin) serve() {
	listener, err := net.Listen("unix", p.path)
	must(err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // it may be another's by then
	p.own, p.stopped, p.server = identity(p.path), make(chan struct{}), grpc.NewServer()
	p.server.RegisterService(p.service(), nil)
	go p.server.Serve(listener)
}

func (p *plugin) close() {
	close(p.stopped)
	timer := time.AfterFunc(time.Second, p.server.Stop)
	p.server.GracefulStop()
	timer.Stop()
	if identity(p.path) == p.own {
		os.Remove(p.path)
	}
}

// keepServing registers, and starts over whenever a socket is replaced; it returns a refusal.
func (p *plugin) keepServing() error {
	for {
		if identity(p.path) != p.own {
			p.close()
			p.open()
		}
		if err := p.keepRegistering(); err != nil {
			return err
		}
		if p.times++; p.panics && p.times == 2 {
			go p.sendToNobody()
		}
		if p.created != nil {
			p.untilCreated()
		} else {
			p.untilLost()
		}
	}
}

func (p *plugin) keepRegistering() error {
	for ; identity(p.path) == p.own; time.Sleep(poll) {
		if p.registeredAt = identity(p.kubelet); p.registeredAt == "" {
			continue
		}
		err := p.register()
		if err == nil || identity(p.path) != p.own {
			return nil
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			return err
		}
	}
	return nil
}

func (p *plugin) register() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := grpc.DialContext(ctx, p.kubelet, grpc.WithInsecure(), grpc.WithContextDialer(dialUnix))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := join(text(1, "v1beta1"), text(2, filepath.Base(p.path)), text(3, resource))
	var answer []byte
	return conn.Invoke(ctx, "/v1beta1.Registration/Register", &request, &answer)
}

func (p *plugin) untilLost() {
	last := time.Now()
	for ; identity(p.path) == p.own; time.Sleep(poll) {
		kubelet := identity(p.kubelet)
		p.mu.Lock()
		if p.streams > 0 || kubelet == "" {
			last = time.Now()
		}
		p.mu.Unlock()
		if time.Since(last) > silence || kubelet != "" && kubelet != p.registeredAt {
			return
		}
	}
}
