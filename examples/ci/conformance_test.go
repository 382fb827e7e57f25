package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestConformance runs `kubedevices check` against the plugin of this module. The environment
// variable KUBEDEVICES is the path of kubedevices; without this variable the test is skipped.
func TestConformance(t *testing.T) {
	kubedevices := os.Getenv("KUBEDEVICES")
	if kubedevices == "" {
		t.Skip("KUBEDEVICES does not name the program")
	}
	plugin := t.TempDir() + "/plugin"
	if out, err := exec.Command("go", "build", "-o", plugin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Replace --dir by the option of your plugin for its plugin directory. If the plugin has no such
	// option, remove the last two arguments and run the test as root.
	check := exec.Command(kubedevices, "check", "--expect", "known-findings.yaml",
		"--", plugin, "--dir", "{socket_dir}")
	out, err := check.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("kubedevices check: %v", err)
	}
}
