package remote_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// A path may contain a query, for example to select the slices of a driver.
func TestGetRawKeepsQuery(t *testing.T) {
	const path = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3Ddra.networking"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.RequestURI))
	}))
	defer server.Close()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.GetRaw(t.Context(), clients.CoreV1().RESTClient(), path)
	if err != nil || string(got) != path {
		t.Errorf("the request is %s, %v; want %s", got, err, path)
	}
}
