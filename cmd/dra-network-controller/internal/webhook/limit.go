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

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Limits for all requests combined. Any client that can reach the port can send requests, because API servers do not
// authenticate themselves to webhooks with a client certificate.
const (
	// maxBody is the maximum size of a request in bytes. A request contains both the new and the old object, including
	// managed fields.
	maxBody = 1 << 20
	// maxDiscarded is the number of bytes beyond maxBody that are read and discarded.
	maxDiscarded = 8 << 20
	// maxRequests is the maximum number of requests in progress. Together with maxBody, it limits memory usage.
	maxRequests = 16
	// requestLimit is the maximum duration of a request, including waiting time. It matches the API server's timeout.
	requestLimit = 2 * time.Second
)

// limited forwards one request at a time, and rejects requests that are too large or have waited too long. A check
// compiles CEL expressions and competes with the controllers for CPU time, so only one check runs at a time. The bodies
// of waiting requests are kept in memory, so the number of waiting requests is also limited.
type limited struct {
	next http.Handler
	// requests counts the requests that are being read or checked, or that are waiting; slots counts only the request
	// that is being checked.
	requests, slots *semaphore.Weighted
}

func newLimited(next http.Handler) *limited {
	return &limited{next: next, requests: semaphore.NewWeighted(maxRequests), slots: semaphore.NewWeighted(1)}
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	// Acquire before reading the body, so that a slow client occupies only one slot, and only until the deadline.
	if l.requests.Acquire(ctx, 1) != nil {
		refuse(w, http.StatusServiceUnavailable,
			fmt.Errorf("cannot check the object: %d other requests are in progress; retry later", maxRequests))
		return
	}
	defer l.requests.Release(1)
	if deadline, ok := ctx.Deadline(); ok {
		// Only test connections do not support deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
	}
	// Read the body here rather than in the handler, because a client that sends slowly must not hold the slot below.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case len(body) > maxBody:
		// If the connection is closed while the client is still writing, the client may not receive the response.
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
		refuse(w, http.StatusRequestEntityTooLarge,
			fmt.Errorf("cannot check the object: the request has more than %d bytes; make the object smaller", maxBody))
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, fmt.Errorf("cannot read the request: %w", err))
		return
	}
	if l.slots.Acquire(ctx, 1) != nil {
		refuse(w, http.StatusServiceUnavailable,
			errors.New("cannot check the object: other objects are being checked; retry later"))
		return
	}
	defer l.slots.Release(1)
	r = r.WithContext(ctx)
	if r.Body = http.NoBody; len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	l.next.ServeHTTP(w, r)
}

// refuse responds to a request that was not checked. The API server treats the response as a webhook failure. With
// failurePolicy Ignore, as in the default configuration, the object is stored unchecked, and the condition Accepted
// reports its problems.
func refuse(w http.ResponseWriter, code int, err error) {
	response := admission.Errored(int32(code), err) //nolint:gosec // it is an HTTP status code
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{ // fails only if the client has disconnected
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &response.AdmissionResponse,
	})
}
