package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
)

const (
	crioName   = "CRI-O"
	crioSocket = "/var/run/crio/crio.sock"
)

// readCRIO reads the configuration of a running CRI-O from its socket (server/inspect.go in CRI-O). The configuration
// combines all files and flags, and includes the defaults.
func (s *Sources) readCRIO(ctx context.Context, process *Process) *Runtime {
	socket := crioSocket
	if process != nil {
		socket = cmp.Or(strings.TrimPrefix(process.flag("listen"), "unix://"), socket)
	}
	c := &Runtime{Name: crioName, File: socket, NRIDisabled: true, NRISocket: "/var/run/nri/nri.sock",
		NRITimeout: 2 * time.Second, CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}, NetworkDir: networkDir}
	data, err := s.Get(ctx, filepath.Join(s.Path, plainPath("/"+socket)), "/config")
	if err == nil {
		err = c.applyCRIO(data)
	}
	if err != nil {
		c.Problem = fmt.Sprintf("cannot read the configuration of CRI-O from %s: %v", socket, err)
	}
	return c
}

// applyCRIO copies the settings into c. If a setting is empty or does not exist in this version of CRI-O, c keeps its
// default. Versions without NRI do not have enable_nri, so NRI is considered disabled.
func (c *Runtime) applyCRIO(data []byte) error {
	settings := map[string]any{}
	if err := toml.Unmarshal(data, &settings); err != nil {
		return err
	}
	crio := table(settings, "crio")
	nri := table(crio, "nri")
	c.NRIDisabled = nri["enable_nri"] != true || nri["nri_disable_connections"] == true
	socket, _ := nri["nri_listen"].(string)
	c.NRISocket = cmp.Or(socket, c.NRISocket)
	if text, _ := nri["nri_plugin_request_timeout"].(string); text != "" {
		timeout, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("nri_plugin_request_timeout: %w", err)
		}
		c.NRITimeout = cmp.Or(timeout, c.NRITimeout)
	}
	if validator := table(nri, "default_validator"); validator["nri_enable_default_validator"] == true {
		setList(&c.Required, validator["nri_validator_required_plugins"])
		set(&c.Tolerated, validator["nri_validator_tolerate_missing_plugins_annotation"])
	}
	setList(&c.CDIDirs, table(crio, "runtime")["cdi_spec_dirs"])
	setList(&c.CNIDirs, table(crio, "network")["plugin_dirs"])
	set(&c.NetworkDir, table(crio, "network")["network_dir"])
	return nil
}

// maxConfig is the maximum size of CRI-O's configuration in bytes.
const maxConfig = 1 << 20

// getUnix requests a path from an HTTP server that listens on a Unix socket.
func getUnix(ctx context.Context, socket, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := nodeclient.SocketClient(socket, 5*time.Second).Do(request)
	if err != nil {
		return nil, exit.Cause(err)
	}
	defer func() { _ = response.Body.Close() }() // harmless, because the body is only read
	data, err := io.ReadAll(io.LimitReader(response.Body, maxConfig))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", response.Status)
	}
	return data, err
}

// advice contains the names of the settings that findings suggest changing.
type advice struct {
	enableNRI, socket, timeout, tolerate string
}

// advice returns the names of the settings in the runtime's configuration.
func (c *Runtime) advice() advice {
	if c.Name == crioName {
		return advice{
			enableNRI: "set enable_nri = true and nri_disable_connections = false in [crio.nri]", socket: "nri_listen",
			timeout:  "nri_plugin_request_timeout from [crio.nri]",
			tolerate: "nri_validator_tolerate_missing_plugins_annotation",
		}
	}
	return advice{
		enableNRI: fmt.Sprintf("set disable = false in [plugins.%q], remove it from disabled_plugins,", nriPlugin),
		socket:    "socket_path", timeout: fmt.Sprintf("plugin_request_timeout from [plugins.%q]", nriPlugin),
		tolerate: "tolerate_missing_plugins_annotation",
	}
}
