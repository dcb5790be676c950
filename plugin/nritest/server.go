package nritest

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
)

// server simulates the process of a runtime. It accepts plugins through the same library as containerd and CRI-O.
// Because that library cannot close connections, plugins connect through a proxy.
type server struct {
	plugins  *adaptation.Adaptation
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns []net.Conn
}

// serve starts a server on a socket.
func (r *Runtime) serve(socket string) (*server, error) {
	s := &server{target: socket + ".direct"}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	var err error
	if s.plugins, err = adaptation.New(r.Name, r.Version, r.list, update, adaptation.WithSocketPath(s.target),
		adaptation.WithPluginPath(""), adaptation.WithPluginConfigPath("")); err != nil {
		return nil, err
	}
	if err := s.plugins.Start(); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("unix", socket); err != nil {
		return nil, err
	}
	go s.accept()
	return s, nil
}

func (s *server) accept() {
	for {
		plugin, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		direct, err := net.Dial("unix", s.target)
		if err != nil {
			_ = plugin.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, plugin, direct)
		s.mu.Unlock()
		for _, pair := range [][2]net.Conn{{plugin, direct}, {direct, plugin}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // until one of them is closed
				_, _ = pair[0].Close(), pair[1].Close()
			}()
		}
	}
}

// close terminates the process and closes all connections.
func (s *server) close() {
	_ = s.listener.Close()
	s.plugins.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}
