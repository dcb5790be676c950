package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The driver prefers protobuf, but also accepts JSON, which the API server uses for custom resources.
func TestProtobufIsAskedFor(t *testing.T) {
	var accepted string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted = r.Header.Get("Accept")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}}`)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(`
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := restConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods("ns").Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil || pod.UID != "u" {
		t.Errorf("got pod UID %q, error = %v, want u", pod.UID, err)
	}
	if !strings.HasPrefix(accepted, "application/vnd.kubernetes.protobuf,") {
		t.Errorf("got Accept header %q, want one that starts with protobuf", accepted)
	}
}

// The log contains all settings, but no other flags.
func TestLoggedSettings(t *testing.T) {
	cmd := command()
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	logged := settings(cmd.Flags())
	if !slices.Contains(logged, "--v=2") || slices.Contains(logged, "--version=false") ||
		slices.Contains(logged, "--help=false") {
		t.Errorf("got logged settings %q, want --v=2, without --version and --help", logged)
	}
}
