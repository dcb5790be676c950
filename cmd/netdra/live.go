package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

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
