package nodeclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// ShippedSocket returns the path of the node socket if the kubelet uses its default directory.
func ShippedSocket() string { return nodeapi.SocketPath(nodeapi.DefaultPluginDir) }

// SocketVariable is the environment variable that specifies the socket path on nodes where the kubelet uses a
// non-default directory.
const SocketVariable = "NETDRA_SOCKET"

// DefaultSocket returns the default value of --socket.
func DefaultSocket() string { return cmp.Or(os.Getenv(SocketVariable), ShippedSocket()) }

// Client sends requests to the driver on this node. It is safe for concurrent use and does not have to be closed,
// because each request uses a separate connection.
type Client struct {
	socket string
	http   *http.Client
}

// ReleaseLimit is the time limit for a cleanup request. A cleanup may run plugins.
const ReleaseLimit = 2 * time.Minute

// New returns a client for the driver listening on the given socket.
func New(socket string) Client {
	return Client{socket: socket, http: SocketClient(socket, ReleaseLimit)}
}

// SocketClient returns a client for the HTTP server listening on the given socket.
func SocketClient(socket string, limit time.Duration) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Timeout: limit, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// send returns the response body if the status is 200. Otherwise, the body is the driver's error message. Only the
// duration of the response is limited, not its size, because only root can create the node socket.
func (d Client) send(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the driver of this node does not answer at %s: %w; run netdra on the node as root "+
			"while the driver is running; if the kubelet has another --root-dir, use --socket "+
			"ROOT/plugins/dra.networking/netdra.sock", d.socket, exit.Cause(err))
	}
	defer func() { _ = response.Body.Close() }() // harmless, because the body is only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("the driver's answer is incomplete: %w", err)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("the driver at %s does not support %s; check that it has the same version as netdra",
			d.socket, path)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

// answerLimit is the time limit for a GET request. The driver answers such requests from memory.
const answerLimit = 10 * time.Second

// Get reads the response at a path into target. If the connection fails, it does not modify target.
func (d Client) Get(ctx context.Context, path string, target any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return d.sendAndDecode(ctx, http.MethodGet, path, target)
}

// sendAndDecode sends a request to the driver and decodes the JSON response. If decoding fails, the versions of the
// driver and netdra probably differ, for example during a node upgrade.
func (d Client) sendAndDecode(ctx context.Context, method, path string, target any) error {
	body, err := d.send(ctx, method, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, target); err != nil {
		return fmt.Errorf("cannot read the driver's answer at %s: %w; check that it has the same version as netdra",
			d.socket, err)
	}
	return nil
}

// Query reads the response at a path on the node socket; see [Client.Get]. Tests and doctor replace it with functions
// that do not need a socket.
type Query func(ctx context.Context, path string, target any) error

// Read reads the responses at the given paths. The fields for other paths stay empty. The responses are not a
// consistent snapshot, because they are read one after another. An unknown path is a programming error, and results in
// an error from decoding into nil.
func Read(ctx context.Context, query Query, paths ...string) (*nodestate.Answers, error) {
	answers := &nodestate.Answers{}
	targets := map[string]any{
		nodeapi.PathState: &answers.State, nodeapi.PathPolicies: &answers.Inputs,
		nodeapi.PathPublished: &answers.Published,
		nodeapi.PathClaims:    &answers.Claims, nodeapi.PathSandboxes: &answers.Sandboxes,
		nodeapi.PathLeftovers: &answers.Leftovers,
	}
	for _, path := range paths {
		if err := query(ctx, path, targets[path]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// inUseLimit is the time limit for ReadInUse. Its callers can also work without the data.
const inUseLimit = 2 * time.Second

// ReadInUse returns the addresses and devices in use on the node, as reported by its driver: the addresses from the
// Node object, and the claims that hold devices. Both are empty if the driver does not answer.
func ReadInUse(ctx context.Context) (addresses []netip.Addr, claims []nodestate.Claim) {
	ctx, cancel := context.WithTimeout(ctx, inUseLimit)
	defer cancel()
	answers, err := Read(ctx, New(DefaultSocket()).Get, nodeapi.PathState, nodeapi.PathClaims)
	if err != nil {
		return nil, nil
	}
	return answers.State.Addresses, answers.Claims
}

// Versions are the versions of the components to mention in a bug report.
type Versions struct {
	Netdra version.Info `json:"netdra"`
	// Driver is empty if the driver does not answer or does not report its version.
	Driver  string `json:"driver,omitempty"`
	Kubelet string `json:"kubelet,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
}

// VersionsOf returns netdra's version and the versions reported by the driver. answers is nil if the driver does not
// answer.
func VersionsOf(answers *nodestate.Answers) Versions {
	v := Versions{Netdra: version.Get()}
	if answers != nil {
		node := answers.State.Versions
		v.Driver, v.Kubelet, v.Runtime, v.Kernel = answers.State.Version, node.Kubelet, node.Runtime, node.Kernel
	}
	return v
}

// String formats the versions on one line. If a version is unknown, the line includes the reason.
func (v Versions) String() string {
	parts := []string{"netdra " + v.Netdra.String()}
	// The runtime's version is preceded by its name, as in the Node object: containerd://2.4.2.
	for _, component := range []struct{ name, version string }{{"driver", v.Driver}, {"kubelet", v.Kubelet},
		{"", v.Runtime}, {"kernel", v.Kernel}} {
		if component.version != "" {
			parts = append(parts, strings.TrimSpace(component.name+" "+strings.Replace(component.version, "://", " ",
				1)))
		}
	}
	text := strings.Join(parts, ", ")
	if why := cmp.Or(version.Explain(v.Netdra.String()), version.Explain(v.Driver)); why != "" {
		text += " (" + version.Unknown + ": " + why + ")"
	}
	return text
}
