package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestFlags(t *testing.T) {
	got := map[string]string{}
	command().Flags().VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	want := map[string]string{
		"kubeconfig":                "",
		"leader-elect":              "false",
		"leader-elect-namespace":    "",
		"health-probe-bind-address": "127.0.0.1:9682", // never listen on all addresses unless requested
		"metrics-bind-address":      "0",
		"list-attributes":           "false",
		"service-endpoints":         "false",
		"webhook-bind-address":      "127.0.0.1:9684",
		"webhook-cert-dir":          "",
		// This is off by default, because the objects that it requires are only installed by the manifests in deploy/.
		"webhook-certificate-secret":   "",
		"webhook-certificate-validity": "2160h0m0s",
		"webhook-configuration":        "dra-network-controller",
		"v":                            "0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong flags (-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"argument": {[]string{"start"}, `unknown command "start"`},
		"no such file": {[]string{"--kubeconfig", "/does/not/exist"},
			"cannot load the cluster configuration: "},
		"two certificates": {[]string{"--webhook-cert-dir=/x", "--webhook-certificate-secret=a/b"},
			"are both set; set only one"},
		"no namespace": {[]string{"--webhook-certificate-secret=b"}, `must be namespace/name, not "b"`},
		"no configuration": {[]string{"--webhook-certificate-secret=a/b", "--webhook-configuration="},
			"--webhook-configuration is empty; set it to the name"},
		"short validity": {[]string{"--webhook-certificate-secret=a/b", "--webhook-certificate-validity=1s"},
			"must be at least 30s, not 1s"},
		"broken number": {[]string{"-v", "much"}, `invalid argument "much" for "-v, --v" flag`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := command()
			c.SetArgs(test.args)
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetErr(&out)
			err := c.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if out.Len() > 0 {
				t.Errorf("the command printed %q in addition to returning its error", out.String())
			}
		})
	}
}
