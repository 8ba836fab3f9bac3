"""Who is slow, and why: how soon, how rightly and at what price Holdfast says so."""
