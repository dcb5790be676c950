// Package manifest reads the YAML files that users write: topologies, policies, schemas and objects of Kubernetes.
//
// The rule of this package: reading is strict, and every problem includes file, line and field. Absent fields get the
// defaults of the API server.
//
// [Read] splits a file into documents and evaluates only their kinds. A separate function decodes each kind, and
// validates it with the functions of the controller and the webhook.
package manifest
