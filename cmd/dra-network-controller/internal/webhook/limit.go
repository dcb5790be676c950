package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Anybody who reaches the port may send requests: an API server has no client certificate of its own for webhooks. So
// what requests take together has bounds.
const (
	// maxBody is the size of a request in bytes. An object and its predecessor are in it, each with its managed fields.
	maxBody = 1 << 20
	// maxDiscarded is how much beyond that is read and thrown away.
	maxDiscarded = 8 << 20
	// maxRequests is how many requests are read at once: with maxBody it bounds the memory.
	maxRequests = 16
	// requestLimit is how long a request may take, waiting included. The API server waits as long.
	requestLimit = 2 * time.Second
)

// limited passes requests on one at a time, and refuses those that are too large or wait too long. Judging compiles CEL
// expressions, which takes processor time that controllers need: one at a time is what may be taken from them. Requests
// that wait hold their bodies, so their number is bounded, too.
type limited struct {
	next http.Handler
	// requests has a place for each request that is being read or waits; slots has one for the request that is judged.
	requests, slots chan struct{}
}

func newLimited(next http.Handler) *limited {
	return &limited{next: next, requests: make(chan struct{}, maxRequests), slots: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	// The place is taken before the body is read: a client that sends its body slowly fills one place, until the
	// deadline.
	if !acquire(ctx, l.requests) {
		refuse(w, http.StatusServiceUnavailable,
			fmt.Errorf("cannot judge the object: %d other requests are not done; write it again later", maxRequests))
		return
	}
	defer release(l.requests)
	if deadline, ok := ctx.Deadline(); ok {
		// A connection without deadlines is one of a test.
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
	}
	// The body is read here and not by the handler: the turn below must not be held by a client that has not sent all
	// yet.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case len(body) > maxBody:
		// Who still writes when the connection is closed may not see the answer.
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
		refuse(w, http.StatusRequestEntityTooLarge,
			fmt.Errorf("cannot judge the object: the request has more than %d bytes; make the object smaller", maxBody))
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, fmt.Errorf("cannot read the request: %w", err))
		return
	}
	if !acquire(ctx, l.slots) {
		refuse(w, http.StatusServiceUnavailable,
			errors.New("cannot judge the object: other objects are being judged; write it again later"))
		return
	}
	defer release(l.slots)
	r = r.WithContext(ctx)
	if r.Body = http.NoBody; len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	l.next.ServeHTTP(w, r)
}

// acquire takes a place, and is false if there is none until ctx ends.
func acquire(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func release(places chan struct{}) { <-places }

// refuse answers without having judged. The API server takes that as a webhook that has failed. The shipped
// configuration has the failurePolicy Ignore, so the object passes unjudged, and the condition Accepted tells the
// author.
func refuse(w http.ResponseWriter, code int, err error) {
	response := admission.Errored(int32(code), err) //nolint:gosec // it is one of the codes of HTTP
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{ // whoever asked has gone
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &response.AdmissionResponse,
	})
}
