"""One file per client, each as its documentation says; `playing` runs a driver's jobs in a process of its own."""
