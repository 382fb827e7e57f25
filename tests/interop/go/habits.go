package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// creations tells of every file that is created in a directory, as the kernel does for a bind.
func creations(directory string) chan string {
	names := make(chan string, 64)
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err == nil {
		_, err = syscall.InotifyAddWatch(watch, directory, syscall.IN_CREATE)
	}
	if err != nil {
		panic(err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	go func() {
		buffer := make([]byte, 4096)
		for {
			size, err := events.Read(buffer)
			if err != nil {
				return
			}
			for at := 0; at+syscall.SizeofInotifyEvent <= size; {
				length := int(buffer[at+12]) | int(buffer[at+13])<<8
				name := buffer[at+syscall.SizeofInotifyEvent : at+syscall.SizeofInotifyEvent+length]
				for end, letter := range name {
					if letter == 0 {
						name = name[:end]
						break
					}
				}
				names <- string(name)
				at += syscall.SizeofInotifyEvent + length
			}
		}
	}()
	return names
}

// untilCreated returns when kubelet.sock is created anew; nothing else is looked at.
func (p *plugin) untilCreated() {
	for name := range p.created {
		if name == filepath.Base(p.kubelet) && identity(p.kubelet) != p.registeredAt {
			return
		}
	}
}

// tries says how often kubevirt's framework tries to register.
const tries = 3

// keepStarting serves and registers some time later, whenever kubelet.sock is created; meanwhile it
// does nothing else. What served before goes on. Kubevirt's device-plugin-manager does so, for 10 s.
func (p *plugin) keepStarting(signals chan os.Signal) {
	for p.startLate(); ; {
		select {
		case <-signals:
			return
		case name := <-p.created:
			if name == filepath.Base(p.kubelet) {
				p.startLate()
			}
		}
	}
}

func (p *plugin) startLate() {
	for try := 1; try <= tries; try++ {
		os.Remove(p.path)
		p.serve()
		time.Sleep(p.readiness)
		if p.register() == nil {
			return
		}
		if p.server.Stop(); try < tries {
			time.Sleep(p.readiness / 3)
		}
	}
}

// sendToNobody is what a stream of a former kubelet does with the next update.
func (p *plugin) sendToNobody() {
	updates := make(chan int)
	close(updates)
	time.Sleep(800 * time.Millisecond)
	updates <- 1
}
