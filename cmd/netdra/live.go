package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// answerLimit is how long a driver may take to say what it knows. One that takes longer hangs.
const answerLimit = 10 * time.Second

// read asks for something, and decodes it.
func (d driverClient) read(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	body, err := d.call(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("cannot read what the driver says at %s: is it of another version? %w", d.socket, err)
	}
	return nil
}
