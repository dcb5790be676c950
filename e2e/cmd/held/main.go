// Command held is a CNI plugin for tests: it runs another plugin from its own directory, and waits before and after
// running that plugin for as long as the test requests. In held's configuration, "plugin" is the name of the other
// plugin; without it, held only returns the previous result. "control" is the prefix of the files with which a test
// controls held: ADD waits while CONTROL.before-ADD exists before it runs the other plugin, and while CONTROL.after-ADD
// exists afterwards. DEL works in the same way. While held is waiting, the file CONTROL.at-before-ADD (or its
// counterpart for another point) exists.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	err := run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode()) // the other plugin has reported the error
	case err != nil:
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "1.0.0", "code": 100, "msg": err.Error()})
		os.Exit(1)
	}
}

// config is the supported part of the configuration.
type config struct {
	CNIVersion string          `json:"cniVersion"`
	Plugin     string          `json:"plugin"`
	Control    string          `json:"control"`
	PrevResult json.RawMessage `json:"prevResult"`
}

// run handles one call. It prints the other plugin's output even if that plugin failed, because plugins print CNI
// errors to standard output. The process exits with the other plugin's status.
func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{
			"cniVersion": "1.1.0", "supportedVersions": []string{"0.4.0", "1.0.0", "1.1.0"}})
	}
	var c config
	if err := json.Unmarshal(stdin, &c); err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	if err := c.wait("before-" + command); err != nil {
		return err
	}
	output, err := c.call(command, stdin)
	if err == nil {
		err = c.wait("after-" + command)
	}
	_, writeErr := os.Stdout.Write(output)
	return errors.Join(err, writeErr)
}

// call runs the other plugin and returns its output. It passes the environment and the configuration on unchanged,
// since the other plugin ignores unknown keys.
func (c *config) call(command string, stdin []byte) ([]byte, error) {
	if c.Plugin == "" {
		if command == "ADD" {
			return c.PrevResult, nil
		}
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	plugin := exec.Command(filepath.Join(filepath.Dir(self), c.Plugin))
	plugin.Stdin, plugin.Stderr = bytes.NewReader(stdin), os.Stderr
	return plugin.Output()
}

// wait waits while the control file for the given moment exists. While it waits, a marker file exists. If a test kills
// the plugin, the marker file is left behind, and the next run overwrites it.
func (c *config) wait(moment string) (err error) {
	wanted, waits := c.Control+"."+moment, c.Control+".at-"+moment
	if c.Control == "" || !exists(wanted) {
		return nil
	}
	if err := os.WriteFile(waits, nil, 0o600); err != nil {
		return err
	}
	for exists(wanted) {
		time.Sleep(5 * time.Millisecond)
	}
	if err = os.Remove(waits); errors.Is(err, fs.ErrNotExist) { // another process was waiting at the same time
		err = nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
