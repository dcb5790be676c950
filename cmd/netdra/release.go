package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// defaultSocket is where the driver of this node answers.
const defaultSocket = "/var/lib/kubelet/plugins/dra.networking/netdra.sock"

// socketVariable names the environment variable for nodes whose kubelet has another folder.
const socketVariable = "NETDRA_SOCKET"

// socketHere is where the driver of this node answers unless a flag says otherwise.
func socketHere() string { return cmp.Or(os.Getenv(socketVariable), defaultSocket) }

func releaseCommand(to console) *cobra.Command {
	var socket, form string
	var all bool
	cmd := &cobra.Command{
		Use:   "release [KEY]...",
		Short: "Show what the driver of this node could not undo, and have it try again",
		Long: `release shows what was left when a pod ended: steps that the driver tried to undo many times and gave up, so that the pod
could go. A device that is left over is in quarantine: nobody gets it until it is clean and home. The driver tries again every
five minutes by itself; after you have put right what the reason says, release it at once.

Exit status: 0 nothing is left of what was named, 1 something could not be undone again, 2 the driver does not answer.`,
		Example: `  # what is left over on this node, and why
  sudo netdra release

  # try one of them again, or all
  sudo netdra release 5f1c…/uplink/0
  sudo netdra release --all`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			driver := newDriverClient(socket)
			leftovers, err := driver.leftovers(cmd.Context())
			if err != nil {
				return err
			}
			if all {
				keys = nil
				for i := range leftovers {
					keys = append(keys, leftovers[i].Key)
				}
			}
			if len(keys) == 0 {
				return showLeftovers(to, form, leftovers)
			}
			return release(cmd.Context(), newPrinter(to.out), driver, keys)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socketHere(), "where the driver answers")
	cmd.ValidArgsFunction = completeFrom(&socket, leftoverKeys)
	cmd.Flags().BoolVar(&all, "all", false, "try all of them again")
	formFlag(cmd, &form)
	return cmd
}

// showLeftovers prints what is left over.
func showLeftovers(to console, form string, leftovers []executor.Leftover) error {
	if form != formText {
		return printResult(to.out, form, leftovers)
	}
	out := newPrinter(to.out)
	if len(leftovers) == 0 {
		out.good("nothing is left over")
		return nil
	}
	rows := [][]string{{"KEY", "DEVICE", "QUARANTINED", "POD", "STEP", "SINCE", "ATTEMPTS"}}
	for i := range leftovers {
		leftover := &leftovers[i]
		device, quarantined := "-", "no"
		if held := leftover.Step().Step.Device; held != nil {
			device = held.Name
		}
		if leftover.Quarantines() != nil {
			quarantined = "yes"
		}
		rows = append(rows, []string{
			leftover.Key, device, quarantined, leftover.Attachment.Pod.String(), leftover.Step().Step.Name,
			timeText(leftover.Since), fmt.Sprint(leftover.Attempts),
		})
	}
	out.table(rows)
	for i := range leftovers {
		out.warn("%s: %s", leftovers[i].Key, leftovers[i].Reason)
	}
	return nil
}

// release has the driver try again.
func release(ctx context.Context, out *printer, driver driverClient, keys []string) error {
	failed := false
	for _, key := range keys {
		if err := driver.release(ctx, key); err != nil {
			failed = true
			out.bad("%s: %v", key, err)
			continue
		}
		out.good("%s: nothing is left of it", key)
	}
	if failed {
		return &exitError{code: exitFailed, err: errShown}
	}
	return nil
}

// driverClient asks the driver of this node.
type driverClient struct {
	socket string
	http   *http.Client
}

// releaseLimit is how long undoing may take.
const releaseLimit = 2 * time.Minute

func newDriverClient(socket string) driverClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return driverClient{socket: socket, http: &http.Client{Timeout: releaseLimit, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

func (d driverClient) leftovers(ctx context.Context) ([]executor.Leftover, error) {
	var leftovers []executor.Leftover
	err := d.read(ctx, "/leftovers", &leftovers)
	return leftovers, err
}

func (d driverClient) release(ctx context.Context, key string) error {
	_, err := d.call(ctx, http.MethodPost, "/leftovers?key="+url.QueryEscape(key))
	return err
}

func (d driverClient) call(ctx context.Context, method, path string) ([]byte, error) {
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
