package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

// If a key is specified, signing either works or fails: the key is never ignored. Without a file, the key may be in the
// environment; child processes do not inherit it.
func TestSigningKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	empty, good := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "good")
	for path, content := range map[string][]byte{empty: nil, good: text} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(keyVariable, "")
	if read, err := signingKey(""); err != nil || read != nil {
		t.Errorf("without a key: error %v, want neither a key nor an error", err)
	}
	if _, err := signingKey(empty); err == nil {
		t.Error("an empty file was treated as no key, so the release would not be signed")
	}
	if read, err := signingKey(good); err != nil || !key.Equal(read) {
		t.Errorf("key in a file was not read: %v", err)
	}
	t.Setenv(keyVariable, string(text))
	if read, err := signingKey(""); err != nil || !key.Equal(read) {
		t.Errorf("key in the environment was not read: %v", err)
	}
	if left, found := os.LookupEnv(keyVariable); found {
		t.Errorf("the environment still has %d bytes of the key", len(left))
	}
}
