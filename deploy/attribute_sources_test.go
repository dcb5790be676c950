package deploy_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
)

const attributeSources = "samples/attribute-sources"

// source describes a fake of the service that a sample script queries.
type source struct {
	// header must be set to value in every request, as with the real services.
	header, value string
	// answers maps request URIs (paths with queries) to responses. The response to all other requests is "not found".
	answers map[string]string
	// neighbors is the output of the fake lldpcli.
	neighbors string
	want      string
}

// sources returns the scripts, with responses taken from each service's documentation.
func sources() map[string]source {
	const gce, aws = "/computeMetadata/v1/instance/", "/latest/meta-data/"
	const gceInterfaces = `[{"accessConfigs": [], "ip": "10.128.0.70", "ipAliases": ["10.24.3.0/24"],
		"mac": "42:01:0a:80:00:46", "mtu": 1460, "network": "projects/628944397724/networks/default"},
		{"ip": "192.168.1.2", "mac": "42:01:c0:a8:01:02", "mtu": 8244,
		"network": "projects/628944397724/networks/gpu-1"}]`
	ocid := func(kind string) string { return "ocid1." + kind + ".oc1.iad." + strings.Repeat(kind[:1], 60) }
	return map[string]source{
		"gce": {header: "Metadata-Flavor", value: "Google", answers: map[string]string{
			gce + "network-interfaces/?recursive=true": gceInterfaces,
			gce + "attributes/":                        "cluster-name\nphysical_host_topology\n",
			gce + "attributes/physical_host_topology": `{"cluster": "europe-cluster-jfhb", "block": "3e3056e23cf9",
				"subblock": "0fc09525cbd5", "host": "82a38e4d6bd4"}`,
		}, want: `eth0: gce.example.com/block=3e3056e23cf9 gce.example.com/cluster=europe-cluster-jfhb ` +
			`gce.example.com/host=82a38e4d6bd4 gce.example.com/network=gpu-1 gce.example.com/subblock=0fc09525cbd5`},
		"gce without a placement": {header: "Metadata-Flavor", value: "Google", answers: map[string]string{
			gce + "network-interfaces/?recursive=true": gceInterfaces,
			gce + "attributes/":                        "cluster-name\n",
		}, want: "eth0: gce.example.com/network=gpu-1"},
		"azure": {header: "Metadata", value: "true", answers: map[string]string{
			"/metadata/instance?api-version=2025-11-11": `{"compute": {"vmSize": "Standard_ND96isr_H100_v5",
				"placementGroupId": "f67c14ab-e92c-408c-ae2d-da15866ec79a", "platformFaultDomain": "36",
				"interconnectGroupId": "ig-1", "interconnectSubgroupId": "", "vmScaleSetName": "gpus"},
				"network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": "10.144.133.132",
				"publicIpAddress": ""}], "subnet": [{"address": "10.144.133.128", "prefix": "26"}]},
				"ipv6": {"ipAddress": []}, "macAddress": "4201C0A80102"}]}}`,
		}, want: `eth0: azure.example.com/faultDomain=36 azure.example.com/interconnectGroup=ig-1 ` +
			`azure.example.com/placementGroup=f67c14ab-e92c-408c-ae2d-da15866ec79a ` +
			`azure.example.com/subnet=10.144.133.128/26 azure.example.com/vmSize=Standard_ND96isr_H100_v5`},
		"aws": {header: "X-aws-ec2-metadata-token", value: "secret", answers: map[string]string{
			aws + "placement/availability-zone-id":                         "use1-az4",
			aws + "placement/partition-number":                             "3",
			aws + "network/interfaces/macs/":                               "42:01:0a:80:00:46/\n42:01:c0:a8:01:02/\n",
			aws + "network/interfaces/macs/42:01:0a:80:00:46/subnet-id":    "subnet-1",
			aws + "network/interfaces/macs/42:01:c0:a8:01:02/network-card": "2",
			aws + "network/interfaces/macs/42:01:c0:a8:01:02/subnet-id":    "subnet-2",
			"PUT /latest/api/token X-aws-ec2-metadata-token-ttl-seconds":   "secret",
		}, want: "eth0: aws.example.com/networkCard=2 aws.example.com/partition=3 aws.example.com/subnet=subnet-2 " +
			"aws.example.com/zoneID=use1-az4"},
		"oci": {header: "Authorization", value: "Bearer Oracle", answers: map[string]string{
			"/opc/v2/host/": fmt.Sprintf(`{"id": "x", "networkBlockId": "n", "rackId": "rack-7", "rdmaTopologyData": {
				"customerHPCIslandId": %q, "customerHostId": "h", "customerLocalBlock": %q,
				"customerNetworkBlock": %q}}`,
				ocid("hpcisland"), ocid("localblock"), ocid("networkblock")),
		}, want: "eth0: oci.example.com/hpcIsland=" + strings.Repeat("h", 60) + " oci.example.com/localBlock=" +
			strings.Repeat("l", 60) + " oci.example.com/networkBlock=" + strings.Repeat("n", 60) +
			" oci.example.com/rack=rack-7"},
		"oci without a capacity topology": {header: "Authorization", value: "Bearer Oracle", answers: map[string]string{
			"/opc/v2/host/": `{"id": "x", "rackId": "rack-7"}`,
		}, want: "eth0: oci.example.com/rack=rack-7"},
		"lldp": {neighbors: neighbors(`"name": [{"value": "dc1-rail3-leaf1"}],`, 1),
			want: "eth0: lldp.example.com/port=swp2 lldp.example.com/rail=3 lldp.example.com/switch=dc1-rail3-leaf1"},
		"lldp without a name": {neighbors: neighbors("", 1),
			want: "eth0: lldp.example.com/port=swp2 lldp.example.com/switch=00:11:22:33:44:55"},
		"lldp with several neighbours": {neighbors: neighbors("", 2), want: "eth0:"},
		"lldp without neighbours":      {neighbors: `{"lldp": [{}]}`, want: "eth0:"},
	}
}

// neighbors returns the output of lldpcli for the given number of neighbors on eth0.
func neighbors(name string, count int) string {
	neighbor := `{"name": "eth0", "via": "LLDP", "rid": "1", "age": "0 day, 00:01:02", "chassis": [{
		"id": [{"type": "mac", "value": "00:11:22:33:44:55"}], ` + name + ` "descr": [{"value": "a switch"}]}],
		"port": [{"id": [{"type": "ifname", "value": "swp2"}], "ttl": [{"value": "120"}]}]}`
	return `{"lldp": [{"interface": [` + strings.Repeat(neighbor+", ", count-1) + neighbor + `]}]}`
}

// service returns a server that behaves like a metadata service.
func (s *source) service(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.RequestURI()
		if r.Method == http.MethodPut {
			key = "PUT " + key
			for name := range s.answers {
				if rest, ok := strings.CutPrefix(name, key+" "); ok && r.Header.Get(rest) != "" {
					key = name
				}
			}
		} else if r.Header.Get(s.header) != s.value {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		answer, found := s.answers[key]
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server
}

// run runs the script in the same way as the DaemonSet and the systemd unit, and returns its output.
func run(t *testing.T, script, directory string, environment ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", filepath.Join(attributeSources, "publish-attributes"), script,
		"sh", filepath.Join(attributeSources, script))
	command.Env = append(append(os.Environ(), "DIRECTORY="+directory), environment...)
	var problems strings.Builder
	command.Stdout, command.Stderr = &problems, &problems
	err := command.Run()
	return problems.String(), err
}

// TestAttributeSources runs each script against a fake service, and reads the result in the same way as the driver. If
// the service fails later, the file must be kept.
func TestAttributeSources(t *testing.T) {
	for _, tool := range []string{"jq", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the scripts need " + tool)
		}
	}
	for name, test := range sources() {
		t.Run(name, func(t *testing.T) {
			script, _, _ := strings.Cut(name, " ")
			directory, tools := t.TempDir(), t.TempDir()
			lldpcli := "#!/bin/sh\n[ \"$*\" = '-f json0 show neighbors' ] && cat <<'EOF'\n" + test.neighbors + "\nEOF\n"
			if err := os.WriteFile(filepath.Join(tools, "lldpcli"), []byte(lldpcli), 0o700); err != nil {
				t.Fatal(err)
			}
			server := test.service(t)
			environment := []string{"METADATA_SERVER=" + server.URL, "PATH=" + tools + ":" + os.Getenv("PATH")}
			if problems, err := run(t, script, directory, environment...); err != nil || problems != "" {
				t.Fatalf("running the script: %v: %s", err, problems)
			}
			files := &nodeattributes.Directory{Path: directory}
			expect := func() {
				t.Helper()
				read, problems := files.Read()
				facts := nodeattributes.Apply(discovery.Facts{Devices: []discovery.Device{{Name: "eth0",
					Interface: "eth0", MAC: "42:01:c0:a8:01:02"}}}, read)
				if got := facts.Devices[0]; attributesOf(&got) != test.want || problems != nil {
					t.Errorf("wrong attributes (-want +got), problems %v:\n%s",
						problems, cmp.Diff(test.want, attributesOf(&got)))
				}
			}
			expect()
			server.Close()
			if err := os.WriteFile(filepath.Join(tools, "lldpcli"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			problems, err := run(t, script, directory, environment...)
			if err == nil || !strings.Contains(problems, "cannot publish the attributes of "+script) {
				t.Errorf("without the source: got error %v with output %s, want a failure", err, problems)
			}
			expect()
			if left, err := filepath.Glob(filepath.Join(directory, ".*.new")); err != nil || len(left) > 0 {
				t.Errorf("error = %v, leftover temporary files: %v", err, left)
			}
		})
	}
}

// attributesOf returns a device's attributes on one line.
func attributesOf(d *discovery.Device) string {
	text := string(d.Name) + ":"
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		switch v := d.Attributes[name]; {
		case v.StringValue != nil:
			text += fmt.Sprintf(" %s=%s", name, *v.StringValue)
		case v.IntValue != nil:
			text += fmt.Sprintf(" %s=%d", name, *v.IntValue)
		}
	}
	return text
}

// If a service fails for one of several requests, nothing must be published.
func TestAttributeSourceWithAPartOfTheAnswers(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("the scripts need jq")
	}
	for _, test := range []struct{ script, fails string }{
		{"aws", "/latest/meta-data/network/interfaces/macs/42:01:c0:a8:01:02/subnet-id"},
		{"aws", "/latest/meta-data/placement/group-name"},
		{"gce", "/computeMetadata/v1/instance/attributes/"},
		{"gce", "/computeMetadata/v1/instance/attributes/physical_host_topology"},
	} {
		s := sources()[test.script]
		healthy := s.service(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == test.fails {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			healthy.Config.Handler.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		directory := t.TempDir()
		if problems, err := run(t, test.script, directory, "METADATA_SERVER="+server.URL); err == nil {
			t.Errorf("%s without %s: published attributes, want an error; output: %s",
				test.script, test.fails, problems)
		}
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("%s without %s: error = %v, leftover files: %v", test.script, test.fails, err, left)
		}
	}
}

// The DaemonSet and the systemd unit write to the directory that the driver reads by default, and run scripts that
// exist.
func TestRunnersOfAttributeSources(t *testing.T) {
	values, err := os.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const directory = "/var/lib/dra-network/attributes.d"
	if !strings.Contains(string(values), "\n  attributes: "+directory+"\n") {
		t.Errorf("the driver does not read %s by default", directory)
	}
	for file, want := range map[string][]string{
		"daemonset.yaml":     {directory, "/scripts/publish-attributes, gce, sh, /scripts/gce]"},
		"publish-attributes": {directory},
		"lldp.service":       {"publish-attributes lldp /usr/local/lib/dra-network/lldp\n"},
	} {
		text, err := os.ReadFile(filepath.Join(attributeSources, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not contain %q", file, want)
			}
		}
	}
	if len(load(t, filepath.Join(attributeSources, "daemonset.yaml"))) != 1 {
		t.Error("daemonset.yaml does not contain exactly one object")
	}
}
