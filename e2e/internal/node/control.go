package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Operations in requests to the control socket.
const (
	OpStart  = "start"
	OpStop   = "stop"
	OpStatus = "status"
)

// requestTimeout is the server's time limit for one request.
const requestTimeout = 2 * time.Minute

// Request is a request to the control socket. Each connection carries one request and one response, both JSON
// documents, and is then closed.
type Request struct {
	Op   string   `json:"op"`
	Name string   `json:"name,omitempty"`
	Argv []string `json:"argv,omitempty"`
	// Machine makes OpStart start the program as process 1 in its own namespaces. When it terminates, all processes in
	// these namespaces terminate, too.
	Machine bool           `json:"machine,omitempty"`
	Signal  syscall.Signal `json:"signal,omitempty"`
}

// Response is the response to a Request. Processes contains every component that has ever been started, even if Error
// is set.
type Response struct {
	Error     string             `json:"error,omitempty"`
	Processes map[string]Process `json:"processes,omitempty"`
	// Init is the process ID of the process that listens on the socket, as reported by the kernel for the caller's PID
	// namespace.
	Init int `json:"-"`
}

// Process is the state of one component.
type Process struct {
	// PID is the process ID inside the node.
	PID     int    `json:"pid"`
	Running bool   `json:"running"`
	Result  string `json:"result,omitempty"`
	// Argv is the command line.
	Argv []string `json:"argv,omitempty"`
}

// listen opens the control socket in the current directory, because an absolute path could exceed the maximum length of
// a socket path.
func listen() (net.Listener, error) {
	l, err := net.Listen("unix", ControlSocket)
	if err != nil {
		return nil, fmt.Errorf("cannot open the control socket: %w", err)
	}
	return l, nil
}

// serve handles requests concurrently, because a component that is slow to stop must not block other requests. It
// returns only on error.
func (s *supervisor) serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("cannot serve the control socket: %w", err)
		}
		go func() {
			defer func() { _ = conn.Close() }() // the response has been sent
			if err := s.answer(conn); err != nil {
				slog.Error("cannot answer a request", "error", err)
			}
		}()
	}
}

// answer serves one connection. Errors in handling the request are part of the response; connection errors can only be
// logged.
func (s *supervisor) answer(conn net.Conn) error {
	var req Request
	if err := json.NewDecoder(conn).Decode(&req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var resp Response
	if err := s.handle(ctx, req); err != nil {
		resp.Error = err.Error()
	}
	resp.Processes = s.status()
	return json.NewEncoder(conn).Encode(resp)
}

// handle executes a request. OpStatus requires no action, because every response contains the status.
func (s *supervisor) handle(ctx context.Context, req Request) error {
	switch req.Op {
	case OpStart:
		return s.start(req)
	case OpStop:
		return s.stop(ctx, req.Name, req.Signal)
	case OpStatus:
		return nil
	default:
		return fmt.Errorf("unknown operation %q", req.Op)
	}
}

// listener returns the process ID of the process that listens at the other end. The kernel records which process called
// listen(2), and translates its ID into the PID namespace of the caller (SO_PEERCRED, unix(7)).
func listener(conn net.Conn) (int, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is not a Unix socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer,
			perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, perr); err != nil {
		return 0, fmt.Errorf("cannot determine the listening process: %w", err)
	}
	return int(peer.Pid), nil
}

// Call sends one request to process 1 of the cluster in runDir. It works from any network namespace, since it finds the
// socket by its path. When the context is done, Call aborts pending reads and writes by setting a deadline in the past.
// Otherwise, a hung process 1 would block the caller.
func Call(ctx context.Context, runDir string, req Request) (Response, error) {
	var resp Response
	dir, err := os.Open(runDir)
	if err != nil {
		return resp, err
	}
	defer func() { _ = dir.Close() }() // used only in the path of the socket
	// Going through the descriptor keeps the socket's path short.
	socket := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), ControlSocket)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return resp, err
	}
	defer func() { _ = conn.Close() }() // the response has been read
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if resp.Init, err = listener(conn); err != nil {
		return resp, err
	}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return resp, err
	}
	if err := json.NewDecoder(conn).Decode(&resp); err != nil {
		return resp, err
	}
	if resp.Error != "" {
		return resp, errors.New(resp.Error)
	}
	return resp, nil
}
