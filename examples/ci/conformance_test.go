package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestConformance runs `kubedevices check` against the plugin of this module. KUBEDEVICES is the
// program; without it the test is skipped.
func TestConformance(t *testing.T) {
	kubedevices := os.Getenv("KUBEDEVICES")
	if kubedevices == "" {
		t.Skip("KUBEDEVICES does not name the program")
	}
	plugin := t.TempDir() + "/plugin"
	if out, err := exec.Command("go", "build", "-o", plugin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Replace the last words by what your plugin calls its plugin directory, or run this as root.
	check := exec.Command(kubedevices, "check", "--expect", "known-findings.yaml",
		"--", plugin, "--dir", "{socket_dir}")
	out, err := check.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("kubedevices check: %v", err)
	}
}
