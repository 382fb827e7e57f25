package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestDRAConformance runs `kubedevices check` against the DRA driver of this module. The environment
// variable KUBEDEVICES is the path of kubedevices; without this variable the test is skipped.
func TestDRAConformance(t *testing.T) {
	kubedevices := os.Getenv("KUBEDEVICES")
	if kubedevices == "" {
		t.Skip("KUBEDEVICES does not name the program")
	}
	driver := t.TempDir() + "/driver"
	if out, err := exec.Command("go", "build", "-o", driver, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Replace the options by those of your driver. If it has none for directories, remove the last
	// four words and run the test as root: the driver then sees directories of the check at the
	// usual paths.
	check := exec.Command(kubedevices, "check", "--quick", "--expect", "known-findings.yaml",
		"--", driver, "--kubeconfig", "{kubeconfig}", "--node-name", "{node}",
		"--kubelet-dir", "{kubelet_dir}", "--cdi-dir", "{cdi_dir}")
	out, err := check.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("kubedevices check: %v", err)
	}
}
