package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// A user with exactly the documented permissions can query nodes remotely through the API server. The queries fail
// without the permission to run commands in the driver's pods.
func TestCommandsFromElsewhere(t *testing.T) {
	e := newEnv(t, "elsewhere")
	e.veth("el0")
	e.apply(documents(expose("el0", "macvlan", true, "el0"), topology("el0", `
- name: link
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "el0"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.159.0.0/24}}`), claimTemplate("el0", "el0-link")))
	e.offer("el0")
	e.create(pod("one", "el0"))
	e.ready("one")
	e.apply(`apiVersion: v1
kind: ServiceAccount
metadata: {name: helper, namespace: elsewhere}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: elsewhere-helper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dra-network-netdra}
subjects: [{kind: ServiceAccount, name: helper, namespace: elsewhere}]
`)
	kubeconfig := e.kubeconfigOf("helper")
	if output, err := e.elsewhere(kubeconfig, "claims", "pod/one"); err == nil ||
		!containsAll(output, []string{"cannot list the driver's pods", "dra-network-netdra"}) {
		t.Errorf("without the Role, netdra claims returned %v\n%s", err, output)
	}
	e.onNode("kubectl", "-n", stack.Namespace, "create", "rolebinding", "elsewhere-helper", "--role=dra-network-netdra",
		"--serviceaccount=elsewhere:helper")
	t.Cleanup(func() { e.onNode("kubectl", "-n", stack.Namespace, "delete", "rolebinding", "elsewhere-helper") })
	e.eventually("the Role counts", func(context.Context) (bool, error) {
		output, err := e.elsewhere(kubeconfig, "devices", "--node", e.cluster.NodeName())
		return err == nil && strings.Contains(output, "el0"), err
	})
	file := filepath.Join(t.TempDir(), "out")
	for line, want := range map[string][]string{
		"claims pod/one":                 {"elsewhere/one-net-", "attached", "10.159.0."},
		"trace pod/one":                  {"macvlan", "ADD", "10.159.0."},
		"explain pod/one":                {"el0"},
		"doctor --all --node NODE":       {"the driver uses the kubelet's directory", "0 faults"},
		"doctor --all-nodes":             {"node NODE", "0 faults"},
		"devices --all-nodes":            {"NODE", "el0", "in use"},
		"report --node NODE --file FILE": {"written to"},
		"report --all-nodes --file FILE": {"written to"},
		"bundle --node NODE --file FILE": {"written to"},
	} {
		replace := strings.NewReplacer("NODE", e.cluster.NodeName(), "FILE", file)
		// Retry, because doctor reports the state of devices and plugins as last read by the driver, which may be
		// slightly out of date.
		e.eventually(fmt.Sprintf("netdra %s says %q", line, want), func(context.Context) (bool, error) {
			output, err := e.elsewhere(kubeconfig, strings.Fields(replace.Replace(line))...)
			said := err == nil
			for _, text := range want {
				said = said && strings.Contains(output, replace.Replace(text))
			}
			return said, fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be no error
		})
	}
	if env := e.inPod("one", "env"); !containsAll(env, []string{"_INTERFACE=net1\n", "DRA_NETWORK_NET1_REQUEST=",
		"DRA_NETWORK_NET1_MAC=", "DRA_NETWORK_NET1_IPS=10.159.0.",
		`DRA_NETWORK_NET1_JSON={"interface":"net1","request":"`, `"ips":["10.159.0.`}) {
		t.Errorf("the container's environment lacks a variable:\n%s", env)
	}
	e.deleting("one")
	e.gone("one")
}

// kubeconfigOf writes a kubeconfig whose only credential is a token for the given ServiceAccount, and returns its path.
func (e *env) kubeconfigOf(account string) string {
	e.Helper()
	admin, err := e.cluster.RESTConfig()
	if err != nil {
		e.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	token, err := client.CoreV1().ServiceAccounts(e.namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(e.cluster.Kubeconfig())
	if err != nil {
		e.Fatal(err)
	}
	for name, user := range config.AuthInfos {
		plain := user.DeepCopy()
		plain.ClientCertificate, plain.ClientKey, plain.ClientCertificateData, plain.ClientKeyData = "", "", nil, nil
		plain.Token = token.Status.Token
		config.AuthInfos[name] = plain
	}
	for _, context := range config.Contexts {
		context.Namespace = e.namespace
	}
	path := filepath.Join(e.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		e.Fatal(err)
	}
	return path
}

// elsewhere runs netdra on a machine that has no driver and therefore no driver socket.
func (e *env) elsewhere(kubeconfig string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	program, err := filepath.Abs("../../bin/netdra")
	if err != nil {
		return "", err
	}
	cmd := e.cluster.Command(ctx, append([]string{program}, args...)...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "NETDRA_SOCKET=/nowhere/netdra.sock",
		"NETDRA_LOG_DIR=/nowhere")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	err = e.cluster.Run(cmd)
	return output.String(), err
}
