package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// impatience is the time between two reads while no certificate can be served.
const impatience = time.Second

// Source serves the current certificate from the Secret. The manager runs it in all replicas. GetCertificate and Ready
// may be called concurrently; Start must run in a single goroutine.
type Source struct {
	// Reader reads from the API server.
	Reader client.Reader
	// Secret identifies the Secret that contains the certificate.
	Secret types.NamespacedName
	// Period is the time between two reads.
	Period time.Duration

	current atomic.Pointer[tls.Certificate]
	looked  atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false because API servers may connect to any
// replica.
func (*Source) NeedLeaderElection() bool { return false }

// Start reads the Secret periodically until the context is done. It never fails.
func (s *Source) Start(ctx context.Context) error {
	log := newSparing(ctrl.Log.WithName("webhook-certificate"),
		"cannot read the webhook's certificate; the previous certificate, if any, is still served")
	for {
		log.report(s.reload(ctx))
		pause := s.Period
		if s.current.Load() == nil {
			pause = min(pause, impatience)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// reload reads the Secret once. If that fails, the previous certificate remains in use. Even an expired certificate is
// served, because it is better if the client rejects the certificate with a clear error than if the client gets no
// response.
func (s *Source) reload(ctx context.Context) error {
	defer s.looked.Store(true)
	var secret corev1.Secret
	if err := s.Reader.Get(ctx, s.Secret, &secret); err != nil {
		return fmt.Errorf("cannot read the Secret %s: %w", s.Secret, err)
	}
	held := read(secret.Data)
	if len(held.Current.Certificate) == 0 {
		return nil // the keeper has not created it yet
	}
	pair, err := tls.X509KeyPair(held.Current.Certificate, held.Current.Key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate in the Secret %s: %w", s.Secret, err)
	}
	s.current.Store(&pair)
	return nil
}

// GetCertificate implements tls.Config.GetCertificate.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := s.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, fmt.Errorf("cannot serve TLS: the Secret %s contains no certificate yet", s.Secret)
}

// Ready is a readiness check. It waits until the Secret has been read for the first time, not until there is a
// certificate: a ready replica serves a certificate if one exists, and a missing certificate does not block anything.
func (s *Source) Ready(*http.Request) error {
	if !s.looked.Load() {
		return errors.New("the Secret of the webhook's certificate has not been read yet")
	}
	return nil
}

// sparing logs errors from an operation that is retried continually. It logs each error once when it first occurs, and
// once when it is resolved. Errors are compared by their text, so an error with a variable part, such as a time, is
// logged every time. sparing is not safe for concurrent use.
type sparing struct {
	log  logr.Logger
	what string
	last string
}

func newSparing(log logr.Logger, what string) *sparing { return &sparing{log: log, what: what} }

// report logs an error if it differs from the previous one, and logs when an error has been resolved. Callers retry
// every few seconds, so repeated lines would drown out everything else in the log.
func (s *sparing) report(err error) {
	switch {
	case err == nil && s.last != "":
		s.log.Info("resolved: " + s.what)
		s.last = ""
	case err != nil && err.Error() != s.last:
		s.log.Error(err, s.what)
		s.last = err.Error()
	}
}
