package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// clientOptions are what a kubelet sets, or could.
type clientOptions struct {
	Authority  string  `json:"authority"`
	Timeout    float64 `json:"timeout"`     // of the dial; 10 s in a kubelet
	MaxReceive int     `json:"max_receive"` // 4 MiB is grpc-go's default
	Keepalive  float64 `json:"keepalive"`   // seconds between pings, 10 at least
	Window     int32   `json:"window"`      // fixed windows turn the estimator's pings off
}

func (o clientOptions) dial(path string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(dialUnix)}
	if o.Authority != "" {
		options = append(options, grpc.WithAuthority(o.Authority))
	}
	if o.MaxReceive != 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxReceive)))
	}
	if o.Keepalive != 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: seconds(o.Keepalive), Timeout: time.Second, PermitWithoutStream: true,
		}))
	}
	if o.Window != 0 {
		options = append(options, grpc.WithInitialWindowSize(o.Window), grpc.WithInitialConnWindowSize(o.Window))
	}
	if o.Timeout == 0 {
		o.Timeout = 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), seconds(o.Timeout))
	defer cancel()
	return grpc.DialContext(ctx, path, options...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// client makes the calls a test orders: "call" begins one, "recv" reads one message of a stream,
// "cancel" ends one, "load" makes many. It tells "message" and, last of a call, "end"; and "state"
// whenever the connection's changes.
type client struct {
	conn  *grpc.ClientConn
	mu    sync.Mutex
	calls map[int]*clientCall
}

type clientCall struct {
	cancel context.CancelFunc
	wanted chan struct{} // one for each message the test wants to have read
}

func runClient(path, text string) {
	var options clientOptions
	must(json.Unmarshal([]byte(text), &options))
	conn, err := options.dial(path)
	if err != nil {
		tell(record{Op: "failed", Text: err.Error()})
		return
	}
	c := &client{conn: conn, calls: map[int]*clientCall{}}
	tell(record{Op: "ready"})
	go c.tellStates()
	orders(c.act)
}

func (c *client) tellStates() {
	for state := c.conn.GetState(); c.conn.WaitForStateChange(context.Background(), state); {
		state = c.conn.GetState()
		tell(record{Op: "state", Text: state.String()})
	}
}

func (c *client) act(r record) {
	switch r.Op {
	case "call":
		c.begin(r)
	case "recv":
		if call := c.find(r.ID); call != nil {
			call.wanted <- struct{}{}
		}
	case "cancel":
		if call := c.find(r.ID); call != nil {
			call.cancel()
		}
	case "load":
		go c.load(r)
	case "close":
		c.conn.Close()
		tell(record{Op: "closed"})
	}
}

func (c *client) find(id int) *clientCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

func (c *client) begin(r record) {
	ctx, cancel := context.WithCancel(context.Background())
	if r.Timeout != 0 {
		ctx, cancel = context.WithTimeout(context.Background(), seconds(r.Timeout))
	}
	call := &clientCall{cancel, make(chan struct{}, 1<<16)}
	c.mu.Lock()
	c.calls[r.ID] = call
	c.mu.Unlock()
	go func() {
		message, err := []byte(nil), error(nil)
		if r.Stream {
			err = c.stream(ctx, call, r)
		} else {
			err = c.conn.Invoke(ctx, r.Method, &r.payload, &message, options(r)...)
		}
		cancel()
		c.mu.Lock()
		delete(c.calls, r.ID)
		c.mu.Unlock()
		tellEnd(r.ID, message, err)
	}()
}

func options(r record) []grpc.CallOption {
	if r.Gzip {
		return []grpc.CallOption{grpc.UseCompressor("gzip")}
	}
	return nil
}

func (c *client) stream(ctx context.Context, call *clientCall, r record) error {
	description := &grpc.StreamDesc{ServerStreams: true}
	stream, err := c.conn.NewStream(ctx, description, r.Method, options(r)...)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&r.payload); err != nil && err != io.EOF {
		return err // io.EOF: the reason comes with RecvMsg
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		select {
		case <-call.wanted:
		case <-ctx.Done():
		}
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		tell(record{Op: "message", ID: r.ID, payload: message})
	}
}

func tellEnd(id int, message []byte, err error) {
	end := record{Op: "end", ID: id, payload: message}
	if err != nil {
		found := status.Convert(err)
		end.Code, end.Text, end.payload = uint32(found.Code()), found.Message(), nil
		for _, each := range found.Proto().GetDetails() {
			end.Details += len(each.GetValue())
		}
	}
	tell(end)
}

// load makes Count calls by each of Workers, and tells how long each took and the last failure.
func (c *client) load(r record) {
	result := record{Op: "end", ID: r.ID}
	var mu sync.Mutex
	var workers sync.WaitGroup
	for n := 0; n < r.Workers; n++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for k := 0; k < r.Count; k++ {
				begun := time.Now()
				var message []byte
				err := c.conn.Invoke(context.Background(), r.Method, &r.payload, &message)
				took := time.Since(begun).Microseconds()
				mu.Lock()
				result.Micros = append(result.Micros, took)
				if code := status.Code(err); code != codes.OK {
					result.Code, result.Text = uint32(code), err.Error()
				}
				mu.Unlock()
			}
		}()
	}
	workers.Wait()
	tell(result)
}
