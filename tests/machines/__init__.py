"""Other machines on this one: sshd in network, mount and process namespaces of their own, and a bucket to talk through.

    with laboratory(tmp_path, hosts=("one", "two")) as lab:
        lab.hosts["one"].run("python3 -V")

A host has its own address, loopback, /tmp, home and processes; its only shared files are read-only system folders and
the packages that this Python has installed, without Tradewind. Everything lives in namespaces whose first process ends
with this one, so the kernel cleans up even after kill -9.
"""
