// Command ovn-k8s-cni-overlay is a test plugin that implements the protocol of OVN-Kubernetes' CNI plugin of the same
// name: it sends its environment and its standard input to the server on the node, and prints the response. In tests,
// the server is e2e/cmd/ovnkube.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

func main() {
	p := plugin{socket: ovnkube.Socket}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    p.add,
		Del:    p.del,
		Status: p.status,
		Check:  func(*skel.CmdArgs) error { return nil },
		GC:     func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"), "ovn-k8s-cni-overlay (test plugin)")
}

// plugin is the plugin, with the path of the server's socket.
type plugin struct{ socket string }

func (p plugin) add(args *skel.CmdArgs) (err error) {
	defer p.report("ADD", time.Now(), &err)
	var conf types.NetConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return fmt.Errorf("invalid stdin args %w", err)
	}
	body, err := p.post("http://dummy/", request(args))
	if err != nil {
		return err
	}
	var response ovnkube.Response
	if err := json.Unmarshal(body, &response); err != nil {
		return fmt.Errorf("failed to unmarshal response '%s': %w", body, err)
	}
	return types.PrintResult(response.Result, conf.CNIVersion)
}

func (p plugin) del(args *skel.CmdArgs) (err error) {
	defer p.report("DEL", time.Now(), &err)
	_, err = p.post("http://dummy/", request(args))
	return err
}

func (p plugin) status(args *skel.CmdArgs) (err error) {
	defer p.report("STATUS", time.Now(), &err)
	_, err = p.post("http://dummy/", request(args))
	return err
}

func request(args *skel.CmdArgs) ovnkube.Request {
	env := map[string]string{}
	for _, item := range os.Environ() {
		if key, value, found := strings.Cut(item, "="); found && key != "" {
			env[key] = value
		}
	}
	return ovnkube.Request{Env: env, Config: args.StdinData}
}

// report tells the server how long a call took, like the real plugin. Nothing depends on this report. err is a pointer
// because the call to report is deferred before the result is known.
func (p plugin) report(command string, start time.Time, err *error) {
	_, _ = p.post("http://dummy/metrics", ovnkube.Metrics{Command: command,
		ElapsedTime: time.Since(start).Seconds(), HasErr: *err != nil})
}

// post sends a message to the server and returns the response. It has no time limit of its own: if a plugin takes too
// long, the runtime kills it, but the server continues.
func (p plugin) post(url string, message any) ([]byte, error) {
	data, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("failed to marshal CNI request: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
		},
	}}
	response, err := client.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("failed to send CNI request: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // the body has been read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("failed to read CNI result: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CNI request failed with status %d: '%s'", response.StatusCode, body)
	}
	return body, nil
}
