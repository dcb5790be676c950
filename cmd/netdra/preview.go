package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// preview is the configuration of a step as far as it is known before it is run: templates of {{ device }} rendered as the
// engine does, the device's own parameter set, other templates as they are.
func preview(step *cnichain.PlanStep) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(step.Config))
	decoder.UseNumber()
	config := map[string]any{}
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("cannot read config: %w", err)
	}
	if step.Device != nil {
		renderer := deviceTemplates{tokens: regexp.MustCompile(`\{\{\s*device\.([A-Za-z][A-Za-z0-9_./-]*)\s*\}\}`), attributes: step.Device.Attributes}
		for key := range config {
			config[key] = renderer.render(config[key])
		}
	}
	if step.DeviceParameter != "" {
		config[step.DeviceParameter] = step.DeviceValue
	}
	if step.RuntimeDeviceID != "" {
		config["runtimeConfig"] = map[string]any{"deviceID": step.RuntimeDeviceID}
	}
	return json.Marshal(config)
}

// deviceTemplates renders tokens of one device. That the device has what they name was checked by [cnichain.Compile].
type deviceTemplates struct {
	tokens     *regexp.Regexp
	attributes map[string]any
}

func (t *deviceTemplates) render(value any) any {
	switch value := value.(type) {
	case string:
		return t.text(value)
	case []any:
		for i := range value {
			value[i] = t.render(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = t.render(value[key])
		}
	}
	return value
}

// text gives a string that is one token the type of the attribute.
func (t *deviceTemplates) text(text string) any {
	if match := t.tokens.FindStringSubmatch(text); match != nil && match[0] == text {
		return t.attributes[match[1]]
	}
	return t.tokens.ReplaceAllStringFunc(text, func(token string) string {
		return fmt.Sprint(t.attributes[t.tokens.FindStringSubmatch(token)[1]])
	})
}
