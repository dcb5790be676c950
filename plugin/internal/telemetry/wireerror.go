package telemetry

import (
	"errors"

	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

// maxErrorBytes limits error messages to the kubelet and the runtime, whose own messages are limited in size.
const maxErrorBytes = 16 << 10

// maxMessage keeps conditions and events readable and within the API's limits.
const maxMessage = 1000

// WireError returns an error in a form that can be sent to the kubelet and the runtime. gRPC and ttrpc reject text that
// is not UTF-8, upon which ttrpc ends the connection for all pods of the node; plugins may print anything.
func WireError(err error) error {
	if err == nil {
		return nil
	}
	if text := sanitize.Shorten(err.Error(), maxErrorBytes); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// WithHint shortens a text and appends a hint, which is never shortened.
func WithHint(text, hint string) string {
	return sanitize.Shorten(text, maxMessage-len("; ")-len(hint)) + "; " + hint
}

// Shorten shortens a text for conditions and events.
func Shorten(text string) string { return sanitize.Shorten(text, maxMessage) }
