package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// backdate is how long before its creation a certificate becomes valid, so that API servers and other replicas accept
// the certificate even if their clocks are slow by that much. A certificate is replaced when a third of its validity is
// left, so clocks may also be fast by the same amount.
const backdate = DefaultValidity / 3

// serialBits is the length of serial numbers. RFC 5280 allows up to 20 octets.
const serialBits = 128

// Pair is a server certificate and the authority that signed it. The authority's key is discarded, so it can never sign
// a second certificate. All fields are PEM-encoded.
type Pair struct {
	// CA is the authority's certificate.
	CA []byte
	// Certificate and Key are the server's certificate and key.
	Certificate, Key []byte
}

// newPair creates a pair for the given DNS names and IP addresses. The authority cannot sign other authorities
// (MaxPathLenZero). Both certificates expire at the same time, since each is useless without the other.
func newPair(names []string, now time.Time, validity time.Duration) (Pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot generate a key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot generate a key: %w", err)
	}
	// Each authority has a distinct name, so that authorities can be told apart.
	ca, err := template("dra-network-controller webhook CA "+now.UTC().Format(time.RFC3339), now, validity)
	if err != nil {
		return Pair{}, err
	}
	ca.IsCA, ca.MaxPathLenZero, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	server, err := template("dra-network-controller webhook", now, validity)
	if err != nil {
		return Pair{}, err
	}
	server.KeyUsage, server.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	caDER, caErr := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	serverDER, serverErr := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), caKey)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(caErr, serverErr, keyErr); err != nil {
		return Pair{}, fmt.Errorf("cannot create a certificate for %q: %w", names, err)
	}
	return Pair{
		CA:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// template returns the fields that both certificates have in common. The serial number is random and positive, as
// required by RFC 5280, section 4.1.2.2.
func template(commonName string, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("cannot generate a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(validity), BasicConstraintsValid: true,
	}, nil
}

// check parses and returns the server certificate. It fails if a client that trusts the authority would reject the
// certificate for any of the names.
func (p Pair) check(names []string, now time.Time) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA) {
		return nil, errors.New("the certificate of the authority is missing or invalid")
	}
	// Verify skips the host name check if the name is empty, so check each name separately.
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return nil, err
		}
	}
	return pair.Leaf, nil
}

// Held is the parsed content of the Secret.
type Held struct {
	// Current is the pair that replicas serve.
	Current Pair
	// Next is the pair that replicas will serve once the API servers trust it. It is usually empty.
	Next Pair
	// FormerCA is the authority of the previous pair, or empty if there was none.
	FormerCA []byte
}

// Bundle returns all authorities that API servers should trust, as concatenated PEM blocks. Empty authorities are
// omitted.
func (h Held) Bundle() []byte {
	return slices.Concat(h.Current.CA, h.Next.CA, h.FormerCA)
}

// Keys in the Secret. The first three are the usual keys in TLS Secrets.
const (
	keyCA, keyCertificate, keyKey             = "ca.crt", "tls.crt", "tls.key"
	keyNextCA, keyNextCertificate, keyNextKey = "next-ca.crt", "next-tls.crt", "next-tls.key"
	keyFormerCA                               = "former-ca.crt"
)

// read returns the content of a Secret. Missing parts are empty.
func read(data map[string][]byte) Held {
	return Held{
		Current:  Pair{CA: data[keyCA], Certificate: data[keyCertificate], Key: data[keyKey]},
		Next:     Pair{CA: data[keyNextCA], Certificate: data[keyNextCertificate], Key: data[keyNextKey]},
		FormerCA: data[keyFormerCA],
	}
}

// data is the inverse of read. Keys without a value are omitted, so that a glance at the Secret shows whether a new
// certificate is pending.
func (h Held) data() map[string][]byte {
	data := map[string][]byte{
		keyCA: h.Current.CA, keyCertificate: h.Current.Certificate, keyKey: h.Current.Key,
		keyNextCA: h.Next.CA, keyNextCertificate: h.Next.Certificate, keyNextKey: h.Next.Key,
		keyFormerCA: h.FormerCA,
	}
	for key, value := range data {
		if len(bytes.TrimSpace(value)) == 0 {
			delete(data, key)
		}
	}
	return data
}
