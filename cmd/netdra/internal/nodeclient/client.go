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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// ShippedSocket returns the path of the node socket where kubelet has its default directory.
func ShippedSocket() string { return nodeapi.SocketPath(nodeapi.DefaultPluginDir) }

// SocketVariable names the environment variable for nodes whose kubelet has another folder.
const SocketVariable = "NETDRA_SOCKET"

// DefaultSocket returns the socket of this node's driver unless a flag names another.
func DefaultSocket() string { return cmp.Or(os.Getenv(SocketVariable), ShippedSocket()) }

// Client queries the driver of this node. It is safe for concurrent use, and need not be closed: each request has its
// own connection.
type Client struct {
	socket string
	http   *http.Client
}

// ReleaseLimit is how long one cleanup may take: it runs plugins.
const ReleaseLimit = 2 * time.Minute

// New returns a client of the driver that serves a socket.
func New(socket string) Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return Client{socket: socket, http: &http.Client{Timeout: ReleaseLimit,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// send returns the body of an answer with status 200. The bodies of others are the driver's own sentences, and become
// the error as they are. The node socket is root's, so what comes from it is bounded by time only.
func (d Client) send(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the driver of this node does not answer at %s: %w; run this on the node as root, "+
			"while the driver runs; if kubelet has another --root-dir, with --socket "+
			"ROOT/plugins/dra.networking/netdra.sock", d.socket, exit.Cause(err))
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("the driver's answer breaks off: %w", err)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("the driver at %s does not know %s: is it of another version than netdra?", d.socket,
			path)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

// answerLimit is how long a driver may take to answer a GET, which reads memory. One that takes longer hangs.
const answerLimit = 10 * time.Second

// Get reads the answer at a path. target is left as it is after an error of the connection.
func (d Client) Get(ctx context.Context, path string, target any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return d.sendAndDecode(ctx, http.MethodGet, path, target)
}

// sendAndDecode queries the driver. An unreadable answer is most likely from a driver of another version, as during an
// upgrade of the node.
func (d Client) sendAndDecode(ctx context.Context, method, path string, target any) error {
	body, err := d.send(ctx, method, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, target); err != nil {
		return fmt.Errorf("cannot read the driver's answer at %s: is it of another version? %w", d.socket, err)
	}
	return nil
}

// Query reads the answer at a path of the node socket, as [Client.Get] does. Tests and doctor replace it, to read
// answers without a socket.
type Query func(ctx context.Context, path string, target any) error

// Read reads the answers at some paths; the others stay empty. The answers are from moments one after the other: a
// claim may be in one and not yet in the next. A path that is not one of these is a programming error, which decoding
// into nil reports.
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

// ReadHolders reads who holds what, and what devices need of the node.
func ReadHolders(ctx context.Context, socket string) (*nodestate.Answers, error) {
	return Read(ctx, New(socket).Get, nodeapi.PathPublished, nodeapi.PathClaims, nodeapi.PathSandboxes,
		nodeapi.PathLeftovers, nodeapi.PathState)
}

// ReadState returns nil if the driver does not answer.
func ReadState(ctx context.Context, socket string) *nodestate.State {
	state := &nodestate.State{}
	if err := New(socket).Get(ctx, nodeapi.PathState, state); err != nil {
		return nil
	}
	return state
}

// DeviceNames returns the names of published devices.
func DeviceNames(all *nodestate.Answers) []string {
	var names []string
	for _, device := range Devices(all) {
		names = append(names, device.Name)
	}
	return names
}

// ClaimNames returns the names of prepared claims.
func ClaimNames(all *nodestate.Answers) []string {
	var names []string
	for _, claim := range Claims(all) {
		names = append(names, claim.Namespace+"/"+claim.Name)
	}
	return names
}

// LeftoverKeys returns the keys of cleanups that failed.
func LeftoverKeys(all *nodestate.Answers) []string { return leftoverKeys(all.Leftovers) }

// inUseLimit is how long the driver may take to report what is in use: without it the command still works.
const inUseLimit = 2 * time.Second

// ReadInUse returns the links that the node needs, according to its driver: the addresses of the Node object, and the
// claims that hold devices. Both are empty if no driver answers.
func ReadInUse(ctx context.Context) (addresses []netip.Addr, claims []nodestate.Claim) {
	ctx, cancel := context.WithTimeout(ctx, inUseLimit)
	defer cancel()
	answers, err := Read(ctx, New(DefaultSocket()).Get, nodeapi.PathState, nodeapi.PathClaims)
	if err != nil {
		return nil, nil
	}
	return answers.State.Addresses, answers.Claims
}
