package nodeclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// ShowLeftovers prints what is left over.
func ShowLeftovers(streams printer.Streams, form string, leftovers []cnichain.Leftover) error {
	if form != printer.FormText {
		return printer.Encode(streams.Out, form, leftovers)
	}
	out := printer.New(streams.Out)
	if len(leftovers) == 0 {
		out.Good("nothing is left over")
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
			printer.Time(leftover.Since), fmt.Sprint(leftover.Attempts),
		})
	}
	out.Table(rows)
	for i := range leftovers {
		out.Warn("%s: %s", leftovers[i].Key, leftovers[i].Reason)
	}
	return nil
}

// ReleaseKeys has the driver try again.
func ReleaseKeys(ctx context.Context, out *printer.Printer, driver Client, keys []string) error {
	failed := false
	for _, key := range keys {
		if err := driver.release(ctx, key); err != nil {
			failed = true
			out.Bad("%s: %v", key, err)
			continue
		}
		out.Good("%s: nothing is left of it", key)
	}
	if failed {
		return exit.Reported()
	}
	return nil
}

// Leftovers returns the cleanups that failed.
func (d Client) Leftovers(ctx context.Context) ([]cnichain.Leftover, error) {
	var leftovers []cnichain.Leftover
	err := d.Get(ctx, "/leftovers", &leftovers)
	return leftovers, err
}

func (d Client) release(ctx context.Context, key string) error {
	_, err := d.send(ctx, http.MethodPost, "/leftovers?key="+url.QueryEscape(key))
	return err
}
