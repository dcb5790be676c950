package release

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// payloadType is the payload type for in-toto statements in DSSE envelopes.
const payloadType = "application/vnd.in-toto+json"

// ParseKey reads an ECDSA P-256 private key in PEM format, as created by `openssl genpkey -algorithm EC -pkeyopt
// ec_paramgen_curve:P-256`. Errors never contain any part of the key. cosign can verify signatures that use this curve
// without further options. Passwords are not supported, because a workflow could not enter one.
func ParseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("cannot read the key: it is not PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		err = fmt.Errorf("it is a %q; keys with a password are not taken", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("cannot use the key: it is not ECDSA P-256")
	}
	return private, nil
}

// ParsePublicKey reads an ECDSA P-256 public key in PEM format.
func ParsePublicKey(data []byte) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("cannot read the public key: it is not a PUBLIC KEY in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the public key: %w", err)
	}
	public, ok := key.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("cannot use the public key: it is not ECDSA P-256")
	}
	return public, nil
}

// sign returns the signature of data in the format of `cosign sign-blob` and `openssl dgst -sha256 -sign`: ASN.1, in
// base64. The signature is deterministic (RFC 6979), and therefore as reproducible as the rest of the release: this is
// what crypto/ecdsa creates if the random reader is nil.
func sign(key *ecdsa.PrivateKey, data []byte) (string, error) {
	digest := sha256.Sum256(data)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// checkSignature verifies a signature in the format of "cosign sign-blob": ECDSA over SHA-256, ASN.1, base64.
func checkSignature(key *ecdsa.PublicKey, data []byte, encoded string) error {
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("cannot decode the signature: %w", err)
	}
	digest := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(key, digest[:], signature) {
		return errors.New("the signature is not of this key and this content")
	}
	return nil
}

// keyID returns a key's ID, which is the SHA-256 checksum of its PKIX encoding. The ID is a hint for users and tools
// that have several keys; it is not used for verification.
func keyID(key *ecdsa.PublicKey) (string, error) {
	encoded, err := x509.MarshalPKIXPublicKey(key)
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), err
}

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string              `json:"payloadType"`
	Payload     []byte              `json:"payload"` // base64, from encoding/json
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	KeyID     string `json:"keyid"`
	Signature string `json:"sig"`
}

// preAuthentication returns the data that a DSSE signature covers ("PAE" in version 1 of its protocol). The data
// includes the type and the lengths, so that a signature for another purpose, or for data that is split differently, is
// not valid.
func preAuthentication(kind string, payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(kind), kind, len(payload)), payload...)
}

// seal wraps a statement in an envelope together with its signature (DSSE, "Protocol"). The signed data includes the
// type, so that the signature cannot be used for content of another type.
func seal(key *ecdsa.PrivateKey, payload []byte) ([]byte, error) {
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	signature, err := sign(key, preAuthentication(payloadType, payload))
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(envelope{PayloadType: payloadType, Payload: payload,
		Signatures: []envelopeSignature{{KeyID: id, Signature: signature}}})
	return append(data, '\n'), err
}

// open returns the payload of an envelope that was signed with key. It does not interpret the payload before it has
// verified a signature. One valid signature made with the key is sufficient, regardless of any other signatures.
func open(key *ecdsa.PublicKey, data []byte) ([]byte, error) {
	var e envelope
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return nil, fmt.Errorf("cannot decode the envelope: %w", err)
	}
	if e.PayloadType != payloadType {
		return nil, fmt.Errorf("the envelope has a payload of type %q, not %q", e.PayloadType, payloadType)
	}
	var problems error
	for _, s := range e.Signatures {
		err := checkSignature(key, preAuthentication(e.PayloadType, e.Payload), s.Signature)
		if err == nil {
			return e.Payload, nil
		}
		problems = errors.Join(problems, err)
	}
	return nil, orElse(problems, "the envelope has no signature")
}
