"""How far a neuron's value can go when every input value lies in a known range (Lemma 1)."""
