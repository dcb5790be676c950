// Package manifest reads the YAML files that users write: topologies, policies, schemas and Kubernetes objects.
//
// Invariant: reading is strict, and every problem includes the file, line and field. Missing fields get
// the API server's defaults.
//
// [Read] splits a file into documents and determines only their kinds. A separate function for each kind decodes a
// document and validates it with the functions that the controller and the webhook use.
package manifest
