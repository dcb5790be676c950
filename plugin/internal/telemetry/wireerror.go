package telemetry

import (
	"errors"

	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

// maxErrorBytes limits the size of error messages to the kubelet and the runtime, which limit the size of messages.
const maxErrorBytes = 16 << 10

// maxMessage keeps conditions and events readable and within the API's limits.
const maxMessage = 1000

// WireError returns an error in a form that can be sent to the kubelet and the runtime. Plugins may print anything, but
// gRPC and ttrpc reject text that is not UTF-8, and ttrpc then closes the connection that serves all pods on the node.
func WireError(err error) error {
	if err == nil {
		return nil
	}
	if text := sanitize.Shorten(err.Error(), maxErrorBytes); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// WithHint shortens text and appends hint, which is never shortened.
func WithHint(text, hint string) string {
	return sanitize.Shorten(text, maxMessage-len("; ")-len(hint)) + "; " + hint
}

// Shorten shortens text for use in conditions and events.
func Shorten(text string) string { return sanitize.Shorten(text, maxMessage) }
