"""What happened when: profiles, traces and their page."""
