"""What follows a search: the choice by minimum Bayes risk or coverage, and the recognition of loops."""
