package ovnkube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// RealLimit is the real server's time limit for one request (kubeletDefaultCRIOperationTimeout).
	RealLimit = 2 * time.Minute
	// pollInterval is the interval at which a waiting request rereads the pod.
	pollInterval = 200 * time.Millisecond
)

// Config is the configuration of a server.
type Config struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	// Limit is the time limit for each request; 0 means RealLimit.
	Limit time.Duration
	// State is the directory with the files that replace the Open vSwitch database.
	State string
	// PCI is the sysfs directory for PCI devices.
	PCI string
}

// Server handles the plugin's requests.
type Server struct {
	client    kubernetes.Interface
	clock     clock.Clock
	limit     time.Duration
	switching *vswitch
}

// NewServer returns a server. Call Serve to start it.
func NewServer(config Config) *Server {
	if config.Limit == 0 {
		config.Limit = RealLimit
	}
	return &Server{client: config.Client, clock: config.Clock, limit: config.Limit,
		switching: &vswitch{state: config.State, pci: config.PCI}}
}

// Serve listens on a socket until ctx is done. Like the real server, it recreates the socket's directory first.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if err := errors.Join(os.RemoveAll(filepath.Dir(socket)), os.MkdirAll(filepath.Dir(socket), 0o700)); err != nil {
		return fmt.Errorf("cannot make the folder of the socket %s: %w", socket, err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", socket, err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // no data is lost: requests end with the process
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP handles one request. The response is 200 with a Response, or 400 with the error text.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.URL.Path == "/metrics" {
		err = json.Unmarshal(body, &Metrics{})
		if err == nil {
			return
		}
	}
	var answer []byte
	if err == nil {
		answer, err = s.handle(body)
	}
	if err != nil {
		klog.ErrorS(err, "Refused a CNI request")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(answer); err != nil {
		klog.ErrorS(err, "Cannot write the answer of a CNI request")
	}
}

// handle continues even after the plugin has exited, because the server enforces the time limit. A driver that gives up
// on a hung plugin must therefore expect the interface to appear after the driver has cleaned up. The clock is injected
// so that tests do not have to wait.
func (s *Server) handle(body []byte) ([]byte, error) {
	request := &Request{}
	if err := json.Unmarshal(body, request); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	timer := s.clock.NewTimer(s.limit)
	defer timer.Stop()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-timer.C():
			cancel(context.DeadlineExceeded)
		case <-finished:
		}
	}()
	command := request.Env["CNI_COMMAND"]
	switch command {
	case "CHECK", "STATUS", "UPDATE":
		return nil, nil
	case "ADD", "DEL":
	default:
		return nil, fmt.Errorf("unsupported CNI command %s", command)
	}
	r, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	response := &Response{Result: &types100.Result{}}
	if command == "ADD" {
		response.Result, err = s.add(ctx, r)
	} else {
		err = s.del(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %w", r, err)
	}
	klog.InfoS("Answered a CNI request", "command", command, "request", r.String(), "interface", r.ifName)
	return json.Marshal(response)
}
