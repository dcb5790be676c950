package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// beliefs are what the driver of this node knows of the cluster.
type beliefs struct {
	Node     string                           `json:"node"`
	Labels   map[string]string                `json:"labels"`
	Policies []policyapi.DeviceExposurePolicy `json:"policies"`
}

// heldClaim is what matters here of a claim that the driver has prepared.
type heldClaim struct {
	Claim   cnichain.Claim `json:"claim"`
	Devices []heldDevice   `json:"devices"`
}

type heldDevice struct {
	Pool string `json:"pool"`
	Name string `json:"name"`
}

func (c *heldClaim) holds(pool, name string) bool {
	return slices.Contains(c.Devices, heldDevice{Pool: pool, Name: name})
}

// read asks for something, and decodes it.
func (d driverClient) read(ctx context.Context, path string, into any) error {
	body, err := d.call(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("cannot read what the driver says at %s: is it of another version? %w", d.socket, err)
	}
	return nil
}
