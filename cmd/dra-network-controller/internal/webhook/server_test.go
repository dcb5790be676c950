package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// writeCertificate creates a certificate for 127.0.0.1, writes the certificate and its key to the directory, and
// returns a pool that trusts it.
func writeCertificate(t *testing.T, dir string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// serve runs a server until the end of the test, and returns its address.
func serve(t *testing.T, dir string) string {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(Options{Address: address, CertDir: dir}, newReader(t, false), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server stopped with error: %v", err)
		}
	})
	eventually(t, func() bool { return server.StartedChecker()(nil) == nil })
	return address
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatal("the condition was not met in time")
	}
}

// connection returns a client that opens a new connection for every request.
func connection(trusted *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}}
}

func TestServer(t *testing.T) {
	dir := t.TempDir()
	client := connection(writeCertificate(t, dir, 1))
	url := "https://" + serve(t, dir) + Path
	review := func(object string) []byte {
		r := request("DeviceExposurePolicy", admissionv1.Create, []byte(object), nil)
		data, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request:  &r.AdmissionRequest})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, test := range map[string]struct {
		contentType string
		body        []byte
		want        string
	}{
		"valid": {"application/json", review(`{"spec": {"action": "exclude", "selector": {"cel": "true"}}}`),
			"7 200 allowed"},
		"a remark": {"application/json",
			review(
				`{"spec": {"selector": {"cel": "true"}, "exposure": {"supportedCNIPlugins": [{"name": "a", ` +
					`"exclusive": true}]}}}`,
			), "7 200 allowed: the expression selects links of every type"},
		"invalid": {"application/json", review(`{"spec": {"action": "exclude", "selector": {"cel": "1"}}}`),
			`7 422 refused: spec.selector.cel: Invalid value: "1": cannot compile`},
		"garbage":      {"application/json", []byte("\x00\xff{{{"), " 400 refused: "},
		"nothing":      {"application/json", nil, " 400 refused: request body is empty"},
		"another type": {"text/html", review(`{}`), " 400 refused: contentType=text/html"},
		// The API server rejects a response that does not include the request's UID, so these responses do not matter.
		"no review": {"application/json", []byte(`{"apiVersion": "v1", "kind": "Pod"}`), " 200 allowed"},
		"no request": {"application/json",
			[]byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`), " 200 allowed"},
		"endless": {"application/json", append(review(`{}`), bytes.Repeat([]byte(" "), 8<<20)...),
			" 413 refused: cannot check the object: the request has more than 1048576 bytes"},
		"deep": {"application/json",
			review(`{"spec": ` + strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000) + `}`),
			"7 422 refused: "},
		"a huge amount": {"application/json",
			review(
				`{"spec": {"selector": {"cel": "true"}, "exposure": {"capacity": {"c": {"value": "1e999999999"}}, ` +
					`"supportedCNIPlugins": [{"name": "a", "exclusive": true}]}}}`,
			), "7 422 refused: spec.exposure.capacity[c].value: Forbidden"},
		"a huge message": {"application/json",
			review(`{"spec": {"action": "` + strings.Repeat("x", 1<<19) + `", "selector": {"cel": "true"}}}`),
			"7 422 refused: spec.action: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := client.Post(url, test.contentType, bytes.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			var answered admissionv1.AdmissionReview
			if err := json.Unmarshal(body, &answered); err != nil || answered.Response == nil {
				t.Fatalf("cannot parse the response %q: %v", body, err)
			}
			r := answered.Response
			said := "allowed"
			for _, warning := range r.Warnings {
				said += ": " + warning
			}
			if !r.Allowed {
				said = "refused: " + r.Result.Message
			}
			code := int32(http.StatusOK)
			if r.Result != nil {
				code = r.Result.Code
			}
			if got := fmt.Sprintf("%s %d %s", r.UID, code, said); !strings.HasPrefix(got, test.want) ||
				len(got) > 64<<10 {
				t.Errorf("got %.300s, want %s", got, test.want)
			}
		})
	}
}

// TestServerTakesANewCertificate checks that a renewed certificate is used without restarting the controller.
func TestServerTakesANewCertificate(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir, 1)
	address := serve(t, dir)
	renewed := connection(writeCertificate(t, dir, 2))
	eventually(t, func() bool {
		response, err := renewed.Get("https://" + address + Path)
		if err != nil {
			return false // the server still has the old certificate, which this client doesn't trust
		}
		return response.Body.Close() == nil
	})
}

func TestNewServerSaysWhatIsMissing(t *testing.T) {
	with, empty := t.TempDir(), t.TempDir()
	writeCertificate(t, with, 1)
	for _, test := range []struct{ address, dir, want string }{
		{"127.0.0.1:9684", empty, "cannot load the webhook's certificate from tls.crt and tls.key in " + empty},
		{"9684", with, "cannot parse the webhook's address: "},
		{":0", with, "must end in a port from 1 to 65535"},
		{":http", with, "must end in a port from 1 to 65535"},
		{":70000", with, "must end in a port from 1 to 65535"},
	} {
		if _, err := NewServer(Options{Address: test.address, CertDir: test.dir}, nil, nil); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %s", test.address, err, test.want)
		}
	}
	if _, err := NewServer(Options{Address: ":9684", CertDir: with}, nil, nil); err != nil {
		t.Error(err)
	}
}
