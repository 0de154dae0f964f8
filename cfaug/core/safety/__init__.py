"""Reading what somebody else wrote: no code is run, nothing is unpickled, no secret is kept."""
