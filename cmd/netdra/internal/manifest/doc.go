// Package manifest reads the YAML files that users write: topologies, policies, schemas and objects of Kubernetes.
//
// The rule of this package: reading is strict, and every problem names file, line and field. What is absent is as the
// API server would set it.
package manifest
