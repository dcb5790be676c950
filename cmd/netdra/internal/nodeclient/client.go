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
	"os"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// ShippedSocket is where the driver of this node answers.
const ShippedSocket = "/var/lib/kubelet/plugins/dra.networking/netdra.sock"

// SocketVariable names the environment variable for nodes whose kubelet has another folder.
const SocketVariable = "NETDRA_SOCKET"

// DefaultSocket is where the driver of this node answers unless a flag says otherwise.
func DefaultSocket() string { return cmp.Or(os.Getenv(SocketVariable), ShippedSocket) }

// Client asks the driver of this node.
type Client struct {
	socket string
	http   *http.Client
}

// ReleaseLimit is how long undoing may take.
const ReleaseLimit = 2 * time.Minute

// New returns a client of the driver that serves a socket.
func New(socket string) Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return Client{socket: socket, http: &http.Client{Timeout: ReleaseLimit, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

func (d Client) send(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the driver of this node does not answer at %s: run this on the node as root, while the driver runs; "+
			"if kubelet has another --root-dir, with --socket ROOT/plugins/dra.networking/netdra.sock: %w", d.socket, err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("the driver's answer breaks off: %w", err)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("the driver at %s does not know %s: is it of another version than netdra?", d.socket, path)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

// answerLimit is how long a driver may take to say what it knows. One that takes longer hangs.
const answerLimit = 10 * time.Second

// Get asks for something, and decodes it.
func (d Client) Get(ctx context.Context, path string, target any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	body, err := d.send(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, target); err != nil {
		return fmt.Errorf("cannot read what the driver says at %s: is it of another version? %w", d.socket, err)
	}
	return nil
}

// ReadAll asks the driver who has what.
func ReadAll(ctx context.Context, socket string) (*nodestate.Answers, error) {
	all := &nodestate.Answers{}
	client := New(socket)
	for _, question := range []struct {
		path string
		into any
	}{{"/published", &all.Published}, {"/claims", &all.Claims}, {"/sandboxes", &all.Sandboxes}, {"/leftovers", &all.Leftovers}} {
		if err := client.Get(ctx, question.path, question.into); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ReadState is nil if the driver does not answer.
func ReadState(ctx context.Context, socket string) *nodestate.State {
	state := &nodestate.State{}
	if err := New(socket).Get(ctx, "/state", state); err != nil {
		return nil
	}
	return state
}

// DeviceNames are those of devices that are published.
func DeviceNames(all *nodestate.Answers) []string {
	var names []string
	for _, device := range Devices(all) {
		names = append(names, device.Name)
	}
	return names
}

// ClaimNames are those of claims that are prepared.
func ClaimNames(all *nodestate.Answers) []string {
	var names []string
	for _, claim := range Claims(all) {
		names = append(names, claim.Namespace+"/"+claim.Name)
	}
	return names
}

// LeftoverKeys are those of what could not be undone.
func LeftoverKeys(all *nodestate.Answers) []string {
	var keys []string
	for i := range all.Leftovers {
		keys = append(keys, all.Leftovers[i].Key)
	}
	return keys
}
