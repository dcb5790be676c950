package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// post sends a request to a handler and returns the response's status code and body.
func post(t *testing.T, handler http.Handler, body io.Reader) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, body))
	return recorder.Code, recorder.Body.String()
}

// Objects are checked one at a time, and no request waits longer than the API server's timeout.
func TestRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judging, judged := 0, 0
		leave := make(chan struct{})
		handler := newLimited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if judging++; judging > 1 {
				t.Errorf("%d requests are checked concurrently, want one at a time", judging)
			}
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != "{}" {
				t.Errorf("got body %q, error = %v, want {}", body, err)
			}
			<-leave
			judging--
			judged++
		}))
		var group sync.WaitGroup
		codes := make(chan int, 2*maxRequests)
		for range 2 * maxRequests {
			group.Go(func() {
				code, _ := post(t, handler, strings.NewReader("{}"))
				codes <- code
			})
		}
		synctest.Wait()
		for range 3 {
			leave <- struct{}{}
		}
		synctest.Wait()
		time.Sleep(requestLimit) // fake time, in the synctest bubble
		synctest.Wait()
		if len(codes) != 2*maxRequests-1 || judged != 3 {
			t.Errorf("%d requests answered and %d judged, want all but the one being judged, and 3", len(codes), judged)
		}
		leave <- struct{}{}
		group.Wait()
		count := map[int]int{}
		for range 2 * maxRequests {
			count[<-codes]++
		}
		if count[http.StatusOK] != 4 || count[http.StatusServiceUnavailable] != 2*maxRequests-4 {
			t.Errorf("got responses by code %v, want 4 with 200 and the rest with 503", count)
		}
		go close(leave)
		if code, body := post(t, handler, strings.NewReader("{}")); code != http.StatusOK {
			t.Errorf("request after the rush: got %d %s, want 200", code, body)
		}
	})
}

func TestLargeRequestsAreRefused(t *testing.T) {
	calls := 0
	handler := newLimited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	if code, body := post(t, handler, bytes.NewReader(make([]byte, maxBody))); code != http.StatusOK || calls != 1 {
		t.Errorf("request of %d bytes: got %d %s, want 200", maxBody, code, body)
	}
	code, body := post(t, handler, bytes.NewReader(make([]byte, maxBody+1)))
	if code != http.StatusRequestEntityTooLarge || calls != 1 ||
		!strings.Contains(body, "the request has more than 1048576 bytes") {
		t.Errorf("request of %d bytes: got %d %s, want 413", maxBody+1, code, body)
	}
}
