package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// end is one end of a connection: an RDMA device in a namespace, and the address of the device's link.
type end struct {
	*place
	device, address string
}

// command returns a command that runs a program in the namespace, with a sysfs that shows the RDMA devices in the
// namespace, because libibverbs reads sysfs.
func (p *place) command(ctx context.Context, args ...string) *exec.Cmd {
	const script = `mount -t sysfs sysfs /sys && exec "$@"`
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + p.Path, "unshare", "--mount", "bash", "-c",
		script, "bash"}, args...)...)
}

// gid returns the index of the GID for the end's address, as a program argument. It waits for the GID, which the kernel
// adds some time after the address.
func (e *end) gid() (index string) {
	e.Helper()
	mapped := netip.AddrFrom16(netip.MustParseAddr(e.address).As16()).As16()
	var groups []string
	for i := 0; i < len(mapped); i += 2 {
		groups = append(groups, fmt.Sprintf("%02x%02x", mapped[i], mapped[i+1]))
	}
	want := strings.Join(groups, ":")
	e.eventually(fmt.Sprintf("GID of %s on %s", e.address, e.device), func() error {
		output, err := e.command(context.Background(), "bash", "-c", `cat /sys/class/infiniband/`+e.device+
			`/ports/1/gids/{0..7}`).CombinedOutput()
		table := strings.Fields(string(output))
		position := slices.Index(table, want)
		if err == nil && position < 0 {
			err = errors.New("it is not there")
		}
		index = fmt.Sprint(position)
		if err != nil {
			err = fmt.Errorf("%w: %q", err, table)
		}
		return err
	})
	return index
}

// rping connects one end to another with rdma_cm, and sends messages. It requires queue pair 1 on both devices.
func (e *end) rping(server *end) {
	e.Helper()
	server.gid() // rdma_cm uses the GID to find the device
	e.gid()
	address := []string{"-a", server.address, "-C", "3"}
	e.converse(server, slices.Concat([]string{"rping", "-s"}, address), slices.Concat([]string{"rping", "-c"}, address))
}

// pingPong exchanges messages of the given size, in bytes, on a reliable verbs connection, which is set up over TCP.
func (e *end) pingPong(server *end, size int) {
	e.Helper()
	e.converse(server, pingPong(server, size), append(pingPong(e, size), server.address))
}

// pingPong returns the command line for a server. With an address appended, it is the command line for a client.
func pingPong(e *end, size int) []string {
	return []string{"ibv_rc_pingpong", "-d", e.device, "-g", e.gid(), "-n", "20", "-s", fmt.Sprint(size)}
}

// sendBandwidth sends at the maximum rate.
func (e *end) sendBandwidth(server *end) {
	e.Helper()
	command := func(e *end) []string {
		return []string{"ib_send_bw", "-d", e.device, "-x", e.gid(), "-n", "20", "-s", "4096", "-F"}
	}
	e.converse(server, command(server), append(command(e), server.address))
}

// converse starts a server and then retries a client until the server accepts the connection. Both programs must
// succeed.
func (e *end) converse(server *end, serve, clientArgs []string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	listener := server.command(ctx, serve...)
	var said bytes.Buffer
	listener.Stdout, listener.Stderr = &said, &said
	start := time.Now()
	e.must(listener.Start())
	ended := make(chan error, 1)
	go func() { ended <- listener.Wait() }()
	for {
		output, err := e.command(ctx, clientArgs...).CombinedOutput()
		if err == nil {
			break
		}
		select {
		case ending := <-ended:
			e.Fatalf("%q: %v: %s\n%q: %v: %s", clientArgs, err, output, serve, ending, &said)
		case <-ctx.Done():
			ending := <-ended
			e.Fatalf("%q did not succeed within %s: %v: %s\n%q: %v: %s", clientArgs, patience, err, output, serve,
				ending, &said)
		default: // the server is not listening yet
		}
	}
	if err := <-ended; err != nil {
		e.Fatalf("server %q failed: %v: %s", serve, err, &said)
	}
	e.Logf("%s from %s to %s took %s", clientArgs[0], e.Path, server.Path, time.Since(start).Round(time.Millisecond))
}

// talk exchanges data with each of the programs.
func (e *end) talk(server *end) {
	e.Helper()
	e.rping(server)
	e.pingPong(server, 4096)
	e.sendBandwidth(server)
}
